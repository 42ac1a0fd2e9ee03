"""What each rule asks of a cluster, worked out from params.yaml: params in, resources out.

Amounts follow the size of the model and of the data; what the machine is like comes from :class:`Cluster`, which the
profile sets by ``config``. A single number of a single rule is overruled by ``set-resources`` in the profile.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pipeline_src.common.errors import PipelineError
from pipeline_src.params.machine import USUAL, Machine
from pipeline_src.params.study import Study
from pipeline_src.pretraining.compile_choice import UTILISATION
from pipeline_src.tools.doctor import needs
from pipeline_src.tools.planning.hardware import CHIPS, Allocation
from pipeline_src.tools.planning.job_estimate import JobEstimate
from pipeline_src.tools.planning.jobs import Jobs
from pipeline_src.tools.planning.rates import STARTS, compile_seconds, job_seconds

Resources = dict[str, Any]
MINUTES_A_DAY = 1440
# For the last seconds of a job: SIGURG, which everything but the training loop ignores, two minutes before its end.
SIGNAL = "--signal=URG@120"
WORTH_IT = 0.75  # twice as many GPUs are asked for where they take at most so much of the time
# What sbatch and srun are asked for N GPUs on each node with, by the value of `gpu_request`; Snakemake's executor knows
# the first two by itself. With gpus_per_task each process sees its own GPU alone.
GPU_REQUESTS = {
    "gpus": "--gres=gpu:{}",
    "gres": "--gres=gpu:{}",
    "gpus_per_node": "--gpus-per-node={}",
    "gpus_per_task": "--gpus-per-task=1",
}
CHOICES: Mapping[str, Collection[str]] = {"gpu": CHIPS, "gpu_request": GPU_REQUESTS}  # keys of the cluster's
LARGEST = "mnli"  # a task of a user's own, whose size is not known before it is fetched, counts as this one


@dataclass(frozen=True)
class Cluster:
    """The machine: keys of ``config`` in the profile, or ``--config gpus_per_node=4``.

    Attributes:
        gpus_per_node: GPUs that one node has.
        max_nodes: the most nodes for one pretraining.
        gpu: kind of GPU, as ``plan --hardware`` names it: training takes what the roofline model says.
        gpu_teraflops: where ``gpu`` is not given, the 10^12 floating-point operations a second that training really
            reaches on one GPU; 100 is a third of the peak of an A100 in bfloat16.
        pretraining_hours: one phase gets as many GPUs as it takes to end in that time.
        max_runtime: longest time that a job may ask for, minutes; a pretraining that takes longer is stopped with its
            checkpoint saved, and queued again.
        gpu_request: how GPUs are asked for, a key of GPU_REQUESTS: ``gpus`` is ``--gpus`` for a job of one GPU and
            ``--gres`` for more; the others are the option of Slurm that they are named like, for each job.
        partition, gpu_partition: where jobs without and with a GPU go; None leaves it to the cluster.
    """

    gpus_per_node: int = 8
    max_nodes: int = 8
    gpu: str | None = None
    gpu_teraflops: float = 100
    pretraining_hours: float = 8
    max_runtime: int = MINUTES_A_DAY
    gpu_request: str = "gpus"
    partition: str | None = None
    gpu_partition: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Cluster:
        """From Snakemake's ``config``.

        Raises:
            PipelineError: a key is unknown, or its value is not of its kind.
        """
        names = [each.name for each in fields(cls)]
        for key, value in config.items():
            remedy = f"use {', '.join(names)}"
            if key not in names:
                raise PipelineError(
                    "unknown key in Snakemake's config", key, where="--config or profile", remedy=remedy
                )
            known = CHOICES.get(key)
            if known is not None and value not in known:
                raise PipelineError(
                    f"unknown {key}", value, where="--config or profile", remedy=f"use one of {', '.join(known)}"
                )
            number = known is None and not key.endswith("partition")
            if number and (not isinstance(value, int | float) or value <= 0):
                raise PipelineError(
                    f"{key} is not a number above 0", value, where="--config or profile", remedy="mend it"
                )
        return cls(**config)


class StudyResources:
    """Resources of every rule for one study on one cluster, as Snakemake's keyword arguments.

    Args:
        study: its parameters.
        cluster: it runs on.
        machine: how it runs there, as machine.yaml says.
    """

    def __init__(self, study: Study, cluster: Cluster, machine: Machine = USUAL) -> None:
        self.study, self.cluster, self.machine = study, cluster, machine
        # by formula alone, whatever has been made: what a job asks for does not change while the study runs
        self._jobs = Jobs(study, lambda path: None)
        self.parameters = self._jobs.model.parameters

    @property
    def small(self) -> bool:
        """Whether the study is a sample: its stages last seconds, and those in a row go to the cluster as one job."""
        return self.study.wikipedia.dump.endswith("-sample")

    def group(self, name: str) -> str | None:
        """The group of rules that run one after another in one job; None where each is worth its own."""
        return name if self.small else None

    def work(self, *, memory: int, minutes: int) -> Resources:
        """A stage on text or tables: MB and minutes that a whole English Wikipedia part needs."""
        share = 0.25 if self.small else 1
        return self._on(self.cluster.partition, max(1000, int(memory * share)), max(20, int(minutes * share)))

    def pretraining(self, phase: str) -> Resources:
        """One phase: GPUs over as many nodes as end it in time, and a warning before its time is over."""
        nodes, gpus = self.geometry(phase)
        minutes = 60 * self._hours(self._phase(phase), nodes * gpus)
        memory = int(needs.host_memory(2 * self.parameters, gpus) / 1e6)
        resources = self._on(self.cluster.gpu_partition, memory, 30 + int(2 * minutes))
        resources |= self._gpus(nodes * gpus, gpus, SIGNAL)
        if nodes * gpus == 1:
            return resources
        return resources | {"nodes": nodes, "mpi": "srun", "tasks": nodes * gpus, "tasks_per_gpu": 0}

    def geometry(self, phase: str) -> tuple[int, int]:
        """Nodes and GPUs on each for one phase: powers of two, no more than sequences in a batch allow."""
        job, total = self._phase(phase), 1
        most = min(self.cluster.max_nodes * self.cluster.gpus_per_node, max(1, self.study.pretrain.batch // 8))
        while self._hours(job, total) > self.cluster.pretraining_hours and 2 * total <= most:
            if self._hours(job, 2 * total) > WORTH_IT * self._hours(job, total):
                break
            total *= 2
        gpus = min(total, self.cluster.gpus_per_node)
        return math.ceil(total / gpus), gpus

    def launcher(self, phase: str, threads: int) -> str:
        """What starts one process a GPU; empty for one. The executor hides a job's shape from it: said again here.

        When a process ends with an error, all end at once; when one ends well, it waits for the others.
        """
        nodes, gpus = self.geometry(phase)
        if nodes * gpus == 1:
            return ""
        shape = f"--nodes={nodes} --ntasks={nodes * gpus} --ntasks-per-node={gpus} --cpus-per-task={threads}"
        request = GPU_REQUESTS[self.cluster.gpu_request].format(gpus)
        return f"srun --kill-on-bad-exit=1 --wait=0 {shape} {request}"

    def finetuning(self, task: str) -> Resources:
        """Memory and time of all learning rates, epochs and batches of one task, on one GPU."""
        restart = str(self.study.finetune.restarts[0])
        job = self._jobs.finetuning(task, restart)
        if not job.flops:
            job = self._jobs.finetuning(LARGEST, restart)
        memory = int(6000 + 48 * self.parameters / 1e6)
        return self._on(None, memory, 30 + int(2 * 60 * self._hours(job)))

    @property
    def on_gpu(self) -> Resources:
        """One GPU, where the GPUs are."""
        return self._gpus(1, 1, "") | (
            {"slurm_partition": self.cluster.gpu_partition} if self.cluster.gpu_partition else {}
        )

    def _gpus(self, total: int, each_node: int, extra: str) -> Resources:
        """How a job asks for GPUs, beside other options of sbatch."""
        way = self.cluster.gpu_request
        if way == "gpus" and total == 1:
            return {"gpu": 1} | ({"slurm_extra": extra} if extra else {})
        if way in ("gpus", "gres"):
            return {"gres": f"gpu:{each_node}"} | ({"slurm_extra": extra} if extra else {})
        return {"slurm_extra": f"{extra} {GPU_REQUESTS[way].format(each_node)}".strip()}

    def _phase(self, phase: str) -> JobEstimate:
        (job,) = self._jobs.pretrain(phase)
        return job

    def _hours(self, job: JobEstimate, gpus: int = 1) -> float:
        """Hours of a training on so many GPUs as ``plan`` counts them, were every sequence full."""
        if not job.flops:
            return 0.0
        if self.cluster.gpu is None:
            reached = self.cluster.gpu_teraflops * 1e12
            compiling = compile_seconds(job, Allocation(1, gpus, reached / UTILISATION))
            return (STARTS[job.stage] + compiling + job.slot_flops / (gpus * reached)) / 3600
        sharding = self.machine.pretrain.sharding if job.stage == "pretrain" else "none"
        allocation = Allocation.on(CHIPS[self.cluster.gpu], 1, gpus, sharding)
        return job_seconds(job, allocation, job.slot_flops / job.flops) / 3600

    def _on(self, partition: str | None, memory: int, minutes: int) -> Resources:
        resources: Resources = {"mem_mb": memory, "runtime": min(minutes, self.cluster.max_runtime)}
        return resources | ({"slurm_partition": partition} if partition else {})
