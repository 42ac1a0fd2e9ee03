"""A checkpoint or a group of processes is tested on what pretraining trains."""

from tests.unit.pretrain.conftest import study as study
