"""What all text shares: documents on disk, sentences, the validation split."""
