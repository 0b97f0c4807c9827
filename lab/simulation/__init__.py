"""A simulated map-reduce stage, which the planner's formulas are held against."""
