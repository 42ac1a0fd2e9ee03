"""What a study takes, worked out before it runs: sizes, tokens, FLOPs, time, disk, price. No torch."""
