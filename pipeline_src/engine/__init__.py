"""Fingerprints of code and edits while a stage runs: what the two engines need."""
