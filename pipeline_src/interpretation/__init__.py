"""What a model learnt: probes of its layers, its attention heads, its word vectors, each beside random weights."""
