"""Content of a report as one JSON document; every rendering is made of it alone."""
