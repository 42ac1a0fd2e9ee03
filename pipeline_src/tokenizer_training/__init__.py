"""From prose to a vocabulary."""
