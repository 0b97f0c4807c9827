"""From facts to blocks: what a report shows, in which order and words."""
