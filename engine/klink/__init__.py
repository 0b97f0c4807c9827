"""Klink: which of the queries that share a core runs next, by the slack left before their windows are due.

What the agent loads of this package needs neither SciPy nor numba, and starts no thread.
"""
