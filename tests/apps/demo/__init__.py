"""Tests of the demo: a package, so that it is flushed with its last test."""
