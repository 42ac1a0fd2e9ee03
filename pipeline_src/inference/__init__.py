"""Using a model: masked words filled in, texts as vectors, and foreign models brought into this project's layout."""
