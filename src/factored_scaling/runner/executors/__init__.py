"""Where runs happen."""
