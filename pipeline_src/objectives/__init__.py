"""What is learnt: masked words, next sentences."""
