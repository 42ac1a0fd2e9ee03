"""Compute the cluster resources of each rule, from the size of the study and the settings of the cluster.

A Snakemake profile sets the keys of ``Cluster`` under ``config``. Its ``set-resources`` overrides single values.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources.sizes import source_size
from pipeline_src.study.study import Study

Resources = dict[str, Any]
MINUTES_A_DAY = 1440
# Slurm sends SIGURG two minutes before a job's time limit. Only the training loop reacts to this signal.
SIGNAL = "--signal=URG@120"
# Value of `gpu_request` -> option of sbatch and srun that requests N GPUs on each node. Snakemake's executor supports
# the first two itself. With gpus_per_task, each process sees only its own GPU.
GPU_REQUESTS = {
    "gpus": "--gres=gpu:{}",
    "gres": "--gres=gpu:{}",
    "gpus_per_node": "--gpus-per-node={}",
    "gpus_per_task": "--gpus-per-task=1",
}
# Minimum number of sequences per GPU in a batch.
MIN_SEQUENCES = 8
GPUS_PER_NODE = 8
# Host memory in MB for a small study and for a full study. PROCESS: a pretraining process, with torch's compiler and
# all initial weights. CHECKPOINT: a checkpoint that is gathered from all processes. FINETUNING: a fine-tuning.
PROCESS, CHECKPOINT, FINETUNING = (4000, 8000), (4000, 16000), (6000, 24000)
SMALL_MINUTES = 60
# A corpus is small if it has fewer bytes of text than SMALL_TEXT; its stages take minutes. A training is small if the
# blocks have fewer weights than SMALL_WEIGHTS and it takes fewer FLOPs than SMALL_FLOPS, which is minutes of a GPU.
SMALL_TEXT, SMALL_WEIGHTS, SMALL_FLOPS = 1e9, 30e6, 1e16


@dataclass(frozen=True)
class Cluster:
    """Keys of ``config`` in the profile or its cluster.yaml, or ``--config gpus_per_node=4``.

    Attributes:
        gpus_per_node: number of GPUs per node for pretraining. None: 8, or 1 if the training is small.
        nodes: number of nodes for pretraining.
        max_runtime: maximum time limit of a job, in minutes. The pretraining of a full study requests all of it. If
            pretraining takes longer, it saves a checkpoint, stops, and is queued again.
        gpu_request: how GPUs are requested, a key of GPU_REQUESTS. ``gpus`` means ``--gpus`` for one GPU and ``--gres``
            for several. Each other key is Slurm's option of the same name.
        partition: Slurm partition of jobs without a GPU. None: the cluster's default.
        gpu_partition: Slurm partition of jobs with a GPU. None: the cluster's default.
        submit_command: program that submits jobs. None: jobs run on this machine.
    """

    gpus_per_node: int | None = None
    nodes: int = 1
    max_runtime: int = MINUTES_A_DAY
    gpu_request: str = "gpus"
    partition: str | None = None
    gpu_partition: str | None = None
    submit_command: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Cluster:
        names = [field.name for field in fields(cls)]
        where = "--config or profile"
        for key, value in config.items():
            if key not in names:
                hint = f"use {', '.join(names)}"
                raise PipelineError("unknown key in Snakemake's config", key, where=where, hint=hint)
            if key == "gpu_request" and value not in GPU_REQUESTS:
                hint = f"use one of {', '.join(GPU_REQUESTS)}"
                raise PipelineError(f"unknown {key}", value, where=where, hint=hint)
            is_number = key in ("gpus_per_node", "nodes", "max_runtime")
            if is_number and (not isinstance(value, int) or value <= 0):
                hint = f"set {key} to a whole number above 0"
                raise PipelineError(f"{key} is not a whole number above 0", value, where=where, hint=hint)
        return cls(**config)

    def check_submit_command(self) -> None:
        # Check this early: if the program is missing, Snakemake's executor waits forever.
        if self.submit_command and shutil.which(self.submit_command) is None:
            hint = "start Snakemake on the cluster's login node, or without --profile slurm to run on this machine"
            raise PipelineError("Slurm command not found", self.submit_command, where="PATH", hint=hint)


class StudyResources:
    """Resources of every rule for a study on a cluster, as Snakemake's keyword arguments.

    Attributes:
        small_corpus: whether stages on text take only minutes, judged by the bytes of text.
        small_training: whether pretraining and fine-tuning take only minutes, judged by model size and steps.
    """

    def __init__(self, study: Study, cluster: Cluster) -> None:
        self.study, self.cluster = study, cluster
        sizes = map(source_size, study.corpus.sources.values())
        self.small_corpus = sum(size.text for size in sizes) < SMALL_TEXT
        lengths = study.examples.max_seq_length
        tokens = 0
        for phase, steps in study.pretrain.steps:
            tokens += steps * study.pretrain.batch_size(phase) * getattr(lengths, phase)
        weights = 12 * study.model.num_hidden_layers * study.model.hidden_size**2
        self.small_training = weights < SMALL_WEIGHTS and 6 * weights * tokens < SMALL_FLOPS

    def group(self, name: str) -> str | None:
        # Rules of the same group run one after another in a single job. None: each rule is a job of its own.
        return name if self.small_corpus else None

    def work(self, *, memory: int, minutes: int) -> Resources:
        """Return the resources of a stage on text.

        Args:
            memory: MB that the stage needs for the English Wikipedia.
            minutes: time that it needs for the English Wikipedia.
        """
        share = 0.25 if self.small_corpus else 1
        return self._on(self.cluster.partition, max(1000, int(memory * share)), max(20, int(minutes * share)))

    @property
    def pretraining(self) -> Resources:
        nodes, gpus = self.geometry
        processes = nodes * gpus
        is_full = not self.small_training
        memory = CHECKPOINT[is_full] + gpus * PROCESS[is_full]
        minutes = self.cluster.max_runtime if is_full else SMALL_MINUTES
        resources = self._on(self.cluster.gpu_partition, memory, minutes)
        resources |= self._gpus(processes, gpus, SIGNAL)
        if processes > 1:
            resources |= {"nodes": nodes, "mpi": "srun", "tasks": processes, "tasks_per_gpu": 0}
        return resources

    @property
    def geometry(self) -> tuple[int, int]:
        """(nodes, GPUs per node) for pretraining, so that each GPU gets at least ``MIN_SEQUENCES`` sequences."""
        pretrain = self.study.pretrain
        max_gpus = max(1, min(pretrain.batch_size(phase) for phase, _ in pretrain.steps) // MIN_SEQUENCES)
        gpus = min(self.cluster.gpus_per_node or (1 if self.small_training else GPUS_PER_NODE), max_gpus)
        return max(1, min(self.cluster.nodes, max_gpus // gpus)), gpus

    def launcher(self, threads: int) -> str:
        """Return the srun command that starts one process per GPU; an empty string for a single GPU.

        Nodes and tasks are repeated here, since the executor does not pass them to srun. If one process fails, srun
        ends all processes at once. If one ends without an error, srun waits for all others.

        Args:
            threads: CPU cores per process.
        """
        nodes, gpus = self.geometry
        if nodes * gpus == 1:
            return ""
        shape = f"--nodes={nodes} --ntasks={nodes * gpus} --ntasks-per-node={gpus} --cpus-per-task={threads}"
        request = GPU_REQUESTS[self.cluster.gpu_request].format(gpus)
        return f"srun --kill-on-bad-exit=1 --wait=0 {shape} {request}"

    @property
    def finetuning(self) -> Resources:
        # One job trains all grid points of a task.
        minutes = SMALL_MINUTES if self.small_training else self.cluster.max_runtime
        partition = self.cluster.gpu_partition
        return self._on(partition, FINETUNING[not self.small_training], minutes) | self._gpus(1, 1, "")

    def _gpus(self, total: int, per_node: int, extra: str) -> Resources:
        request = self.cluster.gpu_request
        if request not in ("gpus", "gres"):
            return {"slurm_extra": f"{extra} {GPU_REQUESTS[request].format(per_node)}".strip()}
        gpus: Resources = {"gpu": 1} if request == "gpus" and total == 1 else {"gres": f"gpu:{per_node}"}
        return gpus | ({"slurm_extra": extra} if extra else {})

    def _on(self, partition: str | None, memory: int, minutes: int) -> Resources:
        resources: Resources = {"mem_mb": memory, "runtime": min(minutes, self.cluster.max_runtime)}
        return resources | ({"slurm_partition": partition} if partition else {})
