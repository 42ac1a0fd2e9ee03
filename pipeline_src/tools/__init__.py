"""Tools that no stage needs."""
