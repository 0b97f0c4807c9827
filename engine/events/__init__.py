"""Events: hours at other loads, what breaks in them, what to buy for them, and what to delay instead."""
