"""Checks of params.yaml (a class for each section), machine.yaml and the task files."""
