"""From documents to token ids and sentence pairs."""
