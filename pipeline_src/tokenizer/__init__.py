"""Use of a tokenizer: loading it, text to ids, ids on disk."""
