"""Its policies."""
