"""Deciding, without I/O: the rules as data, what an event means to them, and the webhook's payload."""
