"""Entries of the catalogue become verified files."""
