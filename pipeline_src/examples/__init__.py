"""Turn documents into token ids, and token ids into training examples."""
