"""Configuration of the NATS servers, the same for every way to deploy them."""
