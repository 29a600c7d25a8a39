"""minicode 2."""
