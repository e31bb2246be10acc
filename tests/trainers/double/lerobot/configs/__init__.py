"""Its configurations."""
