"""Deadline scheduling: which of the waiting tuples or windows can still be done in time, and in which order.

Pure Python and NumPy: agents load it.
"""
