"""The tasks' data files: what catalogue/tasks says of them, and readers of the official layouts."""
