"""The encoder, its heads, and the way to and from Hugging Face's file layout."""
