"""From raw dumps and books to documents of clean prose."""
