"""The demo: a stack of its own, four jobs from a plain publisher, a node killed under a training job that goes on."""
