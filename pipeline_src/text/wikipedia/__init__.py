"""Clean Wikipedia dumps."""
