"""From prose to a WordPiece vocabulary."""
