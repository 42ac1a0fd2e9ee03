"""One file an encoder of the family; loaded by name."""
