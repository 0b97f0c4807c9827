"""Load over the coming weeks: seasonal forecasts with intervals, when objectives will be violated, and what that costs.

Modules are imported by their names: statsmodels is loaded only where a model is fitted.
"""
