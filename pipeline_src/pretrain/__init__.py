"""One phase of pretraining, from examples to a saved model."""
