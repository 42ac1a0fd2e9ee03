"""Helpers that all other folders use: errors, files, names, progress."""
