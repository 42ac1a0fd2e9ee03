"""Train tokenizers (WordPiece, byte-level BPE, unigram), load them, and encode text."""
