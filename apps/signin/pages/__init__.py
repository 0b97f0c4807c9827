"""Pages of signing in and of what one signs in with."""
