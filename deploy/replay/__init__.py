"""Public traces replayed over the scheduler: what its decisions are worth, in figures."""
