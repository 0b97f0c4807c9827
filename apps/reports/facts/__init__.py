"""What a report says, as one JSON document; every rendering is made of it alone."""
