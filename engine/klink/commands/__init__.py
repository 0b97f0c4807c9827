"""``slack``, ``memory``, ``pick`` and ``forwarding`` of the command line."""
