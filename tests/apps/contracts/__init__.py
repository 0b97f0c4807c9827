"""Contracts of pages and endpoints: a package, so that its world ends with its last test."""
