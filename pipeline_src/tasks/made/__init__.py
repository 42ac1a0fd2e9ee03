"""Tasks made by a rule or from the corpus."""
