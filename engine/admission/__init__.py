"""Admission: may a query join what runs? Verdict, reasons, effect on every neighbour, and what would admit it.

`decision.decide` answers. Nothing is imported here: processes that only read candidates need no compiler loaded.
"""
