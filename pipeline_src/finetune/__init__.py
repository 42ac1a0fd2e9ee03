"""Train and predict one task."""
