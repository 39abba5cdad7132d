"""The language between services: every message once, with its schema, examples and AsyncAPI page.

Nothing here does I/O and nothing here imports `libs` or `services`; other teams may vendor this package alone.
"""
