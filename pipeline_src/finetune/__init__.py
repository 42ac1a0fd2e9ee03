"""Fine-tuning of a model on a task, and prediction with it."""
