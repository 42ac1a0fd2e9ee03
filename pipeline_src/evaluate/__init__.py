"""Computation of scores from prediction files."""
