"""The source agent: collects on a monitored server, runs the first operators near the data, sends the rest on."""

__all__ = ["VERSION"]


VERSION = "0.1.0"
