"""Train tokenizers, load them, and encode text: WordPiece, byte-level BPE, unigram."""
