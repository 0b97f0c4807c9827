"""The source agent: collects on a monitored server, runs the first operators near the data, sends the rest on."""

__all__ = ["VERSION"]

#: Of Sluice: the one place where it stands.
VERSION = "0.2.0"
