"""Token shards, sentence pairs over them, masks drawn as they are loaded."""
