"""Pretraining: its data and masks, a phase of training, and validation."""
