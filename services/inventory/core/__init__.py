"""What inventory decides, without I/O: silence, liveness, the breaker and the admission of announcements."""
