"""Shared by all packages: errors, files, paths, progress, processes, random numbers."""
