"""Clean books and other text files."""
