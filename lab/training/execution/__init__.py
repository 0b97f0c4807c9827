"""Real executions at small scale: a query as processes under CPU quota, joined by links of limited bandwidth."""
