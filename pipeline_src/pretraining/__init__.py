"""Pretraining: the data, the masks, a phase of training, and its validation."""
