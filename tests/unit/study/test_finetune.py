"""Hyperparameters of tasks."""

from pipeline_src.study.finetune import TaskHyperparameters
from pipeline_src.study.model import ModelParams


def test_task_hyperparameters_max_length_of_the_longest_model_is_valid():
    model = ModelParams(num_hidden_layers=1, hidden_size=64, max_position_embeddings=8192)
    assert TaskHyperparameters(max_length=model.max_position_embeddings).max_length == 8192
