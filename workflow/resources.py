"""Resources of each rule on a cluster, by the size of the data, the model and the cluster's keys.

A profile sets the keys of ``Cluster`` under ``config``. ``set-resources`` in the profile overrides single numbers.
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
# SIGURG, which everything but the training loop ignores, two minutes before a job's time limit
SIGNAL = "--signal=URG@120"
# The option of sbatch and srun for N GPUs on each node, by the value of `gpu_request`; Snakemake's executor knows the
# first two by itself. With gpus_per_task each process sees only its own GPU.
GPU_REQUESTS = {
    "gpus": "--gres=gpu:{}",
    "gres": "--gres=gpu:{}",
    "gpus_per_node": "--gpus-per-node={}",
    "gpus_per_task": "--gpus-per-task=1",
}
# Each GPU gets at least so many sequences of a batch.
MIN_SEQUENCES = 8
GPUS_PER_NODE = 8
# MB of the host's memory for a small and a full study: each process of a pretraining, with torch's compiler and all
# initial weights; a gathered checkpoint; a fine-tuning
PROCESS, CHECKPOINT, FINETUNING = (4000, 8000), (4000, 16000), (6000, 24000)
SMALL_MINUTES = 60
# A corpus is small below so many bytes of text: its stages take minutes. A training is small below so many weights in
# the blocks and so many FLOPs: minutes of a GPU.
SMALL_TEXT, SMALL_WEIGHTS, SMALL_FLOPS = 1e9, 30e6, 1e16


@dataclass(frozen=True)
class Cluster:
    """Keys of ``config`` in the profile or its cluster.yaml, or ``--config gpus_per_node=4``.

    Attributes:
        gpus_per_node: GPUs of a pretraining on each node; by default 8, or 1 if the training is small.
        nodes: nodes of a pretraining.
        max_runtime: longest time that a job may ask for, minutes. The pretraining of a full study asks for all of it; a
            pretraining that takes longer is stopped, with its checkpoint saved, and queued again.
        gpu_request: how GPUs are asked for, a key of GPU_REQUESTS: ``gpus`` is ``--gpus`` for a job of one GPU and
            ``--gres`` for more; the other keys are Slurm's options of the same names.
        partition, gpu_partition: where jobs without and with a GPU go; None leaves it to the cluster.
        submit_command: program that submits the jobs; None if they run on this machine.
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
                raise PipelineError(f"{key} is not a whole number above 0", value, where=where, hint="fix it")
        return cls(**config)

    def check_submit_command(self) -> None:
        # Without the program, Snakemake's executor would wait for ever.
        if self.submit_command and shutil.which(self.submit_command) is None:
            hint = "start Snakemake on the cluster's login node, or without --profile slurm to run on this machine"
            raise PipelineError("no Slurm here: no such program", self.submit_command, where="PATH", hint=hint)


class StudyResources:
    """Resources of every rule for a study on a cluster, as Snakemake's keyword arguments.

    Attributes:
        small_corpus: whether stages on text take minutes, by the sizes in the catalogue and of the user's own files.
        small_training: whether pretraining and fine-tuning take minutes, by the model's size and the steps.
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
        # The rules of a group run one after another in one job. Without a group, each rule is a job.
        return name if self.small_corpus else None

    def work(self, *, memory: int, minutes: int) -> Resources:
        """Return the resources of a stage that needs ``memory`` MB and ``minutes`` for the English Wikipedia."""
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
        """(nodes, GPUs on each node) of pretraining; each GPU gets at least ``MIN_SEQUENCES`` sequences of a batch."""
        pretrain = self.study.pretrain
        max_gpus = max(1, min(pretrain.batch_size(phase) for phase, _ in pretrain.steps) // MIN_SEQUENCES)
        gpus = min(self.cluster.gpus_per_node or (1 if self.small_training else GPUS_PER_NODE), max_gpus)
        return max(1, min(self.cluster.nodes, max_gpus // gpus)), gpus

    def launcher(self, threads: int) -> str:
        """Return the command that starts a process per GPU, with ``threads`` cores each; empty for one GPU.

        The options repeat the job's shape, since the executor does not pass it to srun. If a process fails, srun ends
        all at once; if a process ends without an error, srun waits for the others.
        """
        nodes, gpus = self.geometry
        if nodes * gpus == 1:
            return ""
        shape = f"--nodes={nodes} --ntasks={nodes * gpus} --ntasks-per-node={gpus} --cpus-per-task={threads}"
        request = GPU_REQUESTS[self.cluster.gpu_request].format(gpus)
        return f"srun --kill-on-bad-exit=1 --wait=0 {shape} {request}"

    @property
    def finetuning(self) -> Resources:
        # Time for all points of one task's grid.
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
