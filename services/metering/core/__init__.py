"""What metering decides; nothing here does I/O."""
