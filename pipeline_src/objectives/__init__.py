"""Ways of learning, one file each; ``pretrain.objective`` names the one that a study takes."""
