"""Inventory: the ledger of nodes and cards, and the judge of which nodes are alive."""
