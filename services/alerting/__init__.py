"""Alerting: what has gone wrong and whether it is over, told once each, on the bus and to webhooks."""
