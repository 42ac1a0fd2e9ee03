"""Pretraining objectives, one file each; the parameter ``pretrain.objective`` names the study's."""
