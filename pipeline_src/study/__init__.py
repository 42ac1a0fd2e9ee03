"""params.yaml, machine.yaml and the task files, and their checks."""
