"""Small things every service needs: clock, ids, settings, logs, bounded retries."""
