"""Turn downloaded files into documents of clean prose."""
