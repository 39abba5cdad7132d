"""The node agent: takes up offers of work, runs them under shims, and speaks for the node on the bus."""
