"""Backtests: what was recorded of a cluster, replayed through another policy of admission and placement.

`comparison.backtest` answers. It decides with `engine.admission`, places with `engine.placement` and estimates with
`engine.forecasts.violations`: nothing is decided here that a live cluster would decide otherwise.
"""
