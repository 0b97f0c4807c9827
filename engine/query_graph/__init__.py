"""Queries and hosts as a graph, their nominal flow and costs: what the predictor, its simulator and documents share."""
