"""What a study needs of a machine: bytes of disk, as the plan counts them, and of memory, roughly.

The plan is imported where it is asked: it reads params.yaml's types, which take more than the standard library.
"""

from __future__ import annotations

from typing import Any

KEPT_TWICE = 2  # in the workspace and in DVC's cache
INSTALLED = 2e9  # bytes: the environment
TRAINING = 16  # bytes a parameter in memory: weights, gradients, two moments
BESIDE = 1.5e9  # bytes: libraries, activations of a batch cut to fit
LARGE = 30e6  # parameters: more take a CPU weeks


def parameters(study: Any) -> int:
    """Weights of the encoder."""
    from pipeline_src.tools.planning.model_sizes import ModelSizes

    return ModelSizes.of(study).encoder_parameters


def disk(study: Any) -> float:
    """Bytes that the study writes, its environment included; of a dump, the parts that are listed."""
    from pipeline_src.tools.planning.jobs import STAGES, Jobs

    jobs = Jobs(study, lambda _: None)
    estimates = [job for stage in STAGES.values() for job in stage.jobs(jobs)]
    return INSTALLED + sum(KEPT_TWICE * job.written + job.extra for job in estimates)


def memory(study: Any) -> float:
    """Bytes that its largest stage takes on a CPU."""
    return BESIDE + TRAINING * parameters(study)
