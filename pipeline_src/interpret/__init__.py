"""Measures of what a pretrained model has learnt: probes, attention heads, minimal pairs, and filled masks."""
