"""Jarvis: how much of a query each monitored server runs near the data, solved and adapted.

What the agent loads of this package needs neither SciPy nor numba, and starts no thread.
"""
