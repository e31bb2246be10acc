"""The release, in a module of its own so that every package may read it."""

__version__ = "0.2.0"
