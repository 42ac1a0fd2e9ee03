"""Documents on disk, sentences, the validation split, statistics of the corpus."""
