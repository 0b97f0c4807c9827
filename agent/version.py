"""The agent's version, told with every request."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
