"""The WordPiece vocabulary: learning it and writing text in it."""
