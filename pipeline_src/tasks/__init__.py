"""The tasks of the paper: declared in catalogue/tasks, read, learnt and scored by one handler per kind."""
