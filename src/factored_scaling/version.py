"""The release, in a module of its own so that every room may read it."""

__version__ = "0.1.0"
