"""From books in any encoding and format to clean prose."""
