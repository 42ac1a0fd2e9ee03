"""What a study needs of a machine: bytes of disk, as the plan counts them, and of memory, roughly.

The plan is imported where it is asked: it reads params.yaml's types, which take more than the standard library.
"""

from __future__ import annotations

from typing import Any

KEPT_TWICE = 2  # in the workspace and in DVC's cache
INSTALLED = 2e9  # bytes: the environment
TRAINING = 16  # bytes a parameter in memory: weights, gradients, two moments
BESIDE = 1.5e9  # bytes: libraries, activations of a batch cut to fit
SAVED = 12  # bytes a parameter of a checkpoint
# Bytes a token, layer and unit of width that stay until the backward pass, and with `recompute: true`; bytes a score of
# a predicted token. By torch's own allocator for base and large at 16,384 and 65,536 tokens with a float32 residual
# stream; in bfloat16 it is less.
ACTIVATIONS, RECOMPUTED, SCORES = 42, 4.3, 10
BESIDE_GPU = 0.5e9  # bytes: CUDA's own
# With `sharding`: bytes of a parameter that is whole for a while, with its gradient; blocks that are so at once.
WHOLE, GATHERED = 8, 2
# Of the host's memory, where GPUs train: bytes of a process, its libraries and torch's compiler among them; and of a
# parameter, since each process draws all weights there before it moves its own, sharded or not. What a checkpoint takes
# (SAVED) is gathered in the first process alone.
PROCESS, DRAWN = 4e9, 4
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


def checkpoint(study: Any) -> float:
    """Bytes of one checkpoint of pretraining: weights and two moments."""
    return SAVED * parameters(study)


def host_memory(parameters: int, processes: int) -> float:
    """Bytes of the host's memory that pretraining on GPUs takes on one machine, the first process among its own."""
    return PROCESS + processes * (PROCESS + DRAWN * parameters) + SAVED * parameters


def gpu_memory(study: Any, machine: Any, gpus: int = 1) -> float:
    """Bytes that pretraining takes on each of ``gpus`` at most: the model, and activations of the tokens of a piece."""
    from pipeline_src.tools.planning.counted import predicted_share
    from pipeline_src.tools.planning.model_sizes import ModelSizes

    kept = RECOMPUTED if machine.pretrain.recompute else ACTIVATIONS
    scores = SCORES * study.vocabulary.entries * predicted_share(study)
    each = kept * study.model.layers * study.model.hidden + scores
    held, outside = ModelSizes.of(study).parameters, study.model.hidden * study.vocabulary.entries
    block = max(0, held - outside) / study.model.layers
    whole = {"none": 0.0, "optimiser": held, "full": min(held, outside + GATHERED * block)}[machine.pretrain.sharding]
    spread = 1 if machine.pretrain.sharding == "none" else gpus
    model = TRAINING * held / spread + (WHOLE * whole if gpus > 1 else 0)
    return BESIDE_GPU + model + each * machine.pretrain.max_tokens
