"""Scheduler: admits jobs, gives them cards, and decides what becomes of their attempts."""
