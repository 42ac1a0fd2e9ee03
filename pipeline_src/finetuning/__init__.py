"""Fine-tuning: one task, every point of its recipe's grid, the best of them kept (paper, sections 4 and 5.3)."""
