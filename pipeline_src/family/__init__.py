"""The members of the family, a folder each."""
