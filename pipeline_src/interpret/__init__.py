"""What a model learnt."""
