"""Reproduce BERT: from a raw Wikipedia dump and a shelf of books to the GLUE, SQuAD and SWAG table."""
