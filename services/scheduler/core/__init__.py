"""The scheduler's decisions: pure functions over jobs, quotas and arrays; no time, no ids, no I/O of their own."""
