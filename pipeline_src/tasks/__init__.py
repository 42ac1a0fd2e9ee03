"""The tasks of the paper: their specifications, files, model inputs, predictions and scores."""
