"""A distributed job scheduler that fires on time, and the timing wheel it is built on."""

__version__ = "0.1.0"
