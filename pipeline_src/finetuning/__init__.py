"""Fine-tuning: train a task for every point of its grid and keep the best run (paper, sections 4 and 5.3)."""
