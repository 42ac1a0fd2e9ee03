"""Where the tasks' data files come from: fetched, or made by this project."""
