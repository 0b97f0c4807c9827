"""The running half of an agent: control proxies, epochs, budgets, windows."""
