"""One loop for pretraining and fine-tuning."""
