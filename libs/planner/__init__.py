"""Parallelism planner: a model and a cluster in, ranked layouts with predicted memory and time out.

Pure arithmetic: `shapes` is what is given, `layout` what is chosen, `memory` and `timing` what that costs, `zero3` what
the other way of training would cost, `search` which layouts are worth a try and why the others lost.
"""
