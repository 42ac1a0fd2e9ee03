"""The training loop that pretraining and fine-tuning share."""
