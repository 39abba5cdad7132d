"""The tenants of the local stack, one YAML file each."""
