"""From predictions on disk to scores."""
