"""What the corpus is: counts, drops, overlap with the tasks."""
