"""results/*.json turned into tables, figures and a page."""
