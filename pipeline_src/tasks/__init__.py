"""The tasks of the BERT paper, and others: files, model inputs, predictions and scores."""
