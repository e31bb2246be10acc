"""People who score trials: queue, sheets, collection lists."""
