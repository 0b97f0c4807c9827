"""Forecasts of the load over the coming weeks: seasonal, with intervals, dates of violations, and what those cost.

Modules are imported by their names: statsmodels is loaded only where a model is fitted.
"""
