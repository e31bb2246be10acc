"""A task, a backend and a strategy that factored-scaling finds by their entry points."""
