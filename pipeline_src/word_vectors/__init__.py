"""Vectors of words without context: what the paper's line of work began with."""
