"""Metering: what nodes measured, judged, kept, rolled up."""
