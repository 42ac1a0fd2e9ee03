"""Errors, files, names, progress: what every other folder uses."""
