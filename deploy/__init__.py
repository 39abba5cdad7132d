"""How Farside is run: the local stack, containers, and the configuration of its servers."""
