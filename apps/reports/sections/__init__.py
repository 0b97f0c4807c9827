"""Sections of a report: the facts of each as records, how they are gathered, and the blocks made of them."""
