"""`farside provision`: streams and consumers as the registry says, on any bus."""
