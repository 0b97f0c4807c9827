"""Plans that run for real, for statistics of their operators."""
