"""The encoders, their heads and losses, and their exchange with Hugging Face's model folders."""
