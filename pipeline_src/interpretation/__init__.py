"""Interpretation of a model: probes of its layers, heads and word vectors, each compared with random weights."""
