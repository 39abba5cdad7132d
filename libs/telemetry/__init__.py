"""Tracing: the context that travels with messages, through the outbox and across processes."""
