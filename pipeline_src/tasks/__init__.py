"""The tasks of the paper: declared in tasks.yaml, read, learnt and scored by one handler per kind."""
