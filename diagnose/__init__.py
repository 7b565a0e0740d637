"""Expert system for distributed-training communication trouble."""

__version__ = "0.1.0"
