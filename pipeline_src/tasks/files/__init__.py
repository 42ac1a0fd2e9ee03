"""The tasks' data files: what tasks.yaml says of them, and readers of the official layouts."""
