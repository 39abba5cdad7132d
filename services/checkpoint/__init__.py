"""Checkpoint: commits what attempts have saved, and says what an attempt may start from."""
