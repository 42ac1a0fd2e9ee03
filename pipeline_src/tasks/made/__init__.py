"""Tasks that are generated: from rules (synthetic) or from the corpus."""
