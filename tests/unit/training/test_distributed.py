"""Training in several processes: equal results, failures, sharding, devices, precision and connections."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as param_group

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import hash_file
from pipeline_src.model.bert import BertConfig, BertForPretraining, initialise
from pipeline_src.training import distributed
from pipeline_src.training.distributed import (
    FULL_SHARD,
    SHARD_GRAD_OP,
    Distributed,
    choose_precision,
    distribute_like,
    full_tensor,
    gradient_sync,
    init_distributed,
    shard,
    single_process,
)
from tests.unit.training.processes import SRUN, STEADY, TORCHRUN, assert_same, finish, launch, said


@pytest.fixture
def study(new_folder) -> Path:
    """Make a study folder in which nothing has been trained."""
    return new_folder()


WORLDS = [(2, "none", "lamb", TORCHRUN), (2, "shard_grad_op", "lamb", SRUN)]  # below is one with "full_shard"
MORE_WORLDS = [
    *((size, sharding, "lamb", TORCHRUN) for size in (4, 8) for sharding in ("none", "shard_grad_op", "full_shard")),
    *(
        (2, sharding, optimizer, TORCHRUN)
        for sharding in ("shard_grad_op", "full_shard")
        for optimizer in ("adamw", "bert_adam")
    ),
]


@pytest.mark.parametrize(
    ("size", "sharding", "optimizer", "variables"),
    [*WORLDS, *(pytest.param(*world, marks=pytest.mark.slow) for world in MORE_WORLDS)],
)
def test_distributed_losses_equal_single_process(study, alone, size, sharding, optimizer, variables):
    """Losses agree to 1e-5 in float32 after twelve steps. They differ only in the order of sums."""
    assert finish(launch(study, size, variables, **STEADY, sharding=sharding, optimizer=optimizer)) == [0] * size
    assert_same(study, alone(**STEADY, optimizer=optimizer))


def test_resume_with_other_world_size_and_sharding_equals_single_process(study, alone):
    """With full sharding, some processes take part in passes for which they have no microbatch."""
    chain = [(2, "full_shard", 4), (1, "none", 7), (3, "shard_grad_op", 9), (2, "full_shard", 0)]
    for size, sharding, stop in chain:
        # With a row every six steps, the training always stops between two rows.
        changes = {**STEADY, "sharding": sharding, "optimizer": "lamb", "stop_after": stop, "log_points": 2}
        smaller = [{"microbatch_tokens": 60 if rank == 0 else 20} for rank in range(size)]
        statuses = finish(launch(study, size, TORCHRUN if size > 1 else {}, smaller, **changes))
        assert statuses == [1 if stop else 0] * size
        if stop:
            assert max(path.name for path in study.glob("checkpoints/phase1/*/step-*")) == f"step-{stop:08d}"
    assert_same(study, alone(**STEADY, optimizer="lamb", log_points=2))


def test_processes_with_different_checkpoints_are_rejected(study, new_folder):
    assert finish(launch(study, 2, TORCHRUN, phase1=9, stop_after=5)) == [1, 1]
    processes = launch([study, new_folder()], 2, TORCHRUN, phase1=9)
    texts = said(processes)
    assert [process.returncode for process in processes] == [1, 1]
    for text in texts:
        assert "the processes see different checkpoints: process 0 step 5" in text and "process 1 step 0" in text


def disturb(study: Path, signal_number: int) -> str:
    """Send a signal to process 1 of two, and return what process 0 writes until it ends."""
    main, other = launch(study, 2, TORCHRUN, phase1=100_000, log_points=10_000)  # a row every ten steps
    curve = study / "logs/dvclive/phase1/plots/metrics/loss.tsv"
    deadline = time.monotonic() + 120
    while not curve.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        other.send_signal(signal_number)
        (text,) = said([main])
    finally:
        other.send_signal(signal.SIGKILL)
    assert main.returncode == 1 and "processes that train together have ended or hang" in text
    return text


def test_killed_process_ends_others(study):
    text = disturb(study, signal.SIGKILL)
    assert "Connection" in text and "noticed by process 0 of 2" in text


@pytest.mark.slow
def test_hung_process_is_named_after_timeout(study, monkeypatch):
    monkeypatch.setenv("PIPELINE_HUNG_AFTER", "3")
    assert "Ranks 1 failed to pass monitoredBarrier" in disturb(study, signal.SIGSTOP)


def test_resumed_distributed_training_is_identical(study):
    folder = study
    changes = {"phase1": 60, "hidden_dropout_prob": 0.1}
    assert finish(launch(folder, 2, TORCHRUN, **changes)) == [0, 0]
    expected = hash_file(folder / "models/pretrained/phase1/model.safetensors")
    shutil.rmtree(folder / "models")
    os.environ["PIPELINE_CHECKPOINT_MINUTES"] = "0"
    try:
        processes = launch(folder, 2, TORCHRUN, **changes)
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/phase1/*/step-*")) and time.monotonic() < deadline:
            time.sleep(0.005)
        processes[1].send_signal(signal.SIGTERM)  # one is told, both stop
        assert finish(processes) == [1, 1]  # as the script does not turn Interrupted into a status
        steps = sorted(path.name for path in folder.glob("checkpoints/phase1/*/step-*"))
        assert steps and steps[-1] < "step-00000060"
    finally:
        del os.environ["PIPELINE_CHECKPOINT_MINUTES"]
    assert finish(launch(folder, 2, TORCHRUN, **changes)) == [0, 0]
    assert hash_file(folder / "models/pretrained/phase1/model.safetensors") == expected


def test_more_processes_than_sequences_is_rejected(study):
    statuses = finish(launch(study, 2, TORCHRUN, phase1=2, train_batch_size=1))
    assert statuses == [1, 1]


CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def capability(monkeypatch):
    def lend(*of_gpu: int) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: of_gpu)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")

    return lend


@pytest.mark.parametrize("of_gpu", [(8, 0), (12, 0)])
def test_choose_precision_auto_is_bfloat16_on_ampere_only(capability, of_gpu):
    capability(*of_gpu)
    assert choose_precision("auto", GPU) == choose_precision("bfloat16", GPU) == torch.bfloat16
    assert choose_precision("auto", CPU) == choose_precision("float32", CPU) == torch.float32
    assert choose_precision("bfloat16", CPU) == torch.bfloat16


@pytest.mark.parametrize(("slowdown", "warnings"), [(0.3, 0), (18.0, 1)])
def test_choose_precision_bfloat16_on_slow_cpu_warns(slowdown, warnings, caplog):
    with caplog.at_level("WARNING", "pipeline"):
        assert choose_precision("bfloat16", CPU, lambda dtype: slowdown) == torch.bfloat16
        assert choose_precision("auto", CPU, lambda dtype: slowdown) == torch.float32
    assert len(caplog.messages) == warnings
    assert not warnings or "takes 18 times as long as in float32; set precision: float32" in caplog.messages[0]


def test_choose_precision_before_ampere_rejects_bfloat16(capability):
    capability(7, 5)
    with pytest.raises(PipelineError, match=r"(?s)no bfloat16: Tesla T4.*set precision: float32"):
        choose_precision("bfloat16", GPU)
    assert choose_precision("auto", GPU) == choose_precision("float32", GPU) == torch.float32


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_matmul_has_chosen_precision(precision):
    with Distributed(0, 1, CPU, precision).autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == precision


BLOCKS = 3


@pytest.fixture
def group(tmp_path) -> Iterator[None]:
    """Make a process group of one process, in which torch still runs all collectives."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Sum(nn.Module):
    """Small model of several megabytes, with a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model = BertForPretraining(BertConfig(400, 256, BLOCKS, 4, 1024, 16, hidden_dropout_prob=0.0))

    def forward(self, ids: Tensor) -> Tensor:
        cu_seqlens = torch.arange(0, len(ids) + 1, 8)
        hidden, pooled = self.model.bert(ids, torch.zeros_like(ids), cu_seqlens, 8)
        scores = self.model.cls["predictions"](hidden[::2])
        pairs = self.model.cls["seq_relationship"](pooled)
        return torch.nn.functional.cross_entropy(scores.float(), ids[::2]) + pairs.float().square().mean()


def small_model() -> Sum:
    objective = Sum()
    initialise(objective, torch.Generator().manual_seed(0))
    return objective


def ids(step: int) -> Tensor:
    return torch.randint(0, 400, (32,), generator=torch.Generator().manual_seed(step))


def watch_blocks(objective: nn.Module, events: list[str]) -> None:
    """Record when the backward pass has left each block."""
    for number, block in enumerate(objective.model.bert.encoder.layer):
        block.register_full_backward_hook(lambda *_, number=number: events.append(f"block {number}"))


def assert_overlaps(events: list[str]) -> None:
    """Assert that gradients of the last block are sent before the backward pass has left the first block."""
    assert events.count("launch") > 1
    assert events.index("launch") < events.index("block 1") < events.index("block 0")


@pytest.mark.usefixtures("group")
def test_ddp_all_reduce_overlaps_backward_pass():
    events: list[str] = []
    wrapped = Distributed(0, 2, CPU).wrap(small_model())

    def launch(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        events.append("launch")
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    wrapped.register_comm_hook(None, launch)
    wrapped(ids(0)).backward()  # after it torch orders its buckets as gradients come
    watch_blocks(wrapped.module, events)
    events.clear()
    wrapped(ids(1)).backward()
    assert_overlaps(events)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("how", [SHARD_GRAD_OP, FULL_SHARD])
def test_fsdp_reduce_overlaps_backward_pass_once_per_step(monkeypatch, how):
    events: list[str] = []
    objective = small_model()
    watch_blocks(objective, events)
    shard(objective, CPU, how)
    reduce = param_group.foreach_reduce

    def launch(*arguments, **more):
        events.append("launch")
        return reduce(*arguments, **more)

    monkeypatch.setattr(param_group, "foreach_reduce", launch)
    with gradient_sync(objective, last=True):
        objective(ids(0)).backward()
    assert_overlaps(events)
    once = events.count("launch")
    events.clear()
    for last in (False, True):
        with gradient_sync(objective, last):
            objective(ids(1)).backward()
    assert events.count("launch") == (once if how == SHARD_GRAD_OP else 2 * once)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("how", [SHARD_GRAD_OP, FULL_SHARD])
def test_shard_autocast_keeps_float32_parameters_and_gradients(how):
    """Losses and gradients equal those without sharding."""
    plain, sharded = small_model(), small_model()
    shard(sharded, CPU, how)
    losses, norms = [], []
    for objective in (plain, sharded):
        with gradient_sync(objective, last=True):
            with torch.autocast("cpu", torch.bfloat16):
                loss = objective(ids(0))
            loss.backward()
        losses.append(loss.item())
        norms.append(full_tensor(nn.utils.clip_grad_norm_(objective.parameters(), 1.0)).item())
        selected = {tensor.dtype for parameter in objective.parameters() for tensor in (parameter, parameter.grad)}
        assert selected == {torch.float32}
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    total = torch.stack([full_tensor(parameter.grad).norm() for parameter in sharded.parameters()]).norm()
    assert total.item() == pytest.approx(1, rel=1e-3)  # clipped


@pytest.mark.usefixtures("group")
def test_distribute_like_full_tensor_round_trip():
    sharded, other = small_model(), small_model()
    shard(sharded, CPU, FULL_SHARD)
    for parameter, expected in zip(sharded.parameters(), other.parameters(), strict=True):
        assert torch.equal(full_tensor(distribute_like(expected.detach(), parameter)), expected)
        assert distribute_like(expected, expected) is expected and full_tensor(expected) is expected


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """Fake the number of visible GPUs, and record which ones are set."""
    monkeypatch.setattr(distributed.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(distributed, "_CLAIMED", [])
    monkeypatch.delenv(distributed.VISIBLE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(device.index))

    def see(count: int) -> list[int]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        return chosen

    yield see
    for lock in distributed._CLAIMED:
        lock.close()


@pytest.mark.parametrize(("seen", "local_rank", "number"), [(1, 3, 0), (8, 3, 3), (4, 5, 1)])
def test_own_device_is_local_rank_among_visible_gpus(gpus, seen, local_rank, number):
    """With ``--gpus-per-task 1``, the local rank is not the number of the device."""
    chosen = gpus(seen)
    assert distributed._own_device(local_rank) == torch.device("cuda", number)
    assert chosen == [number]


def test_check_devices_shared_gpu_is_rejected(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="GPU-1"))

    class Two(Distributed):
        def gather(self, value):
            return [("node1", "GPU-1"), ("node1", "GPU-2"), ("node2", "GPU-1"), *others]

    world = Two(0, 4, torch.device("cuda", 0))
    others = [("node2", "GPU-2")]
    distributed._check_devices(world)
    others = [("node1", "GPU-2")]
    with pytest.raises(PipelineError, match="processes 1 and 3 share a GPU"):
        distributed._check_devices(world)


def test_single_process_concurrent_trainings_claim_different_gpus(gpus):
    chosen = gpus(3)
    devices = [single_process().device for _ in range(4)]
    assert [device.index for device in devices] == chosen == [0, 1, 2, 0]  # the fourth shares
    distributed._CLAIMED.pop(1).close()  # one ends
    assert single_process().device.index == 1


def test_single_process_claims_only_gpus_in_cuda_visible_devices(gpus, monkeypatch):
    gpus(2)
    monkeypatch.setenv(distributed.VISIBLE, "4,5")
    assert [single_process().device.index for _ in range(2)] == [0, 1]
    monkeypatch.setenv(distributed.VISIBLE, "5,6")
    assert single_process().device.index == 1  # 6; 5 is taken
    gpus(1)
    assert single_process().device.index == 0


@pytest.mark.parametrize(("rank", "reason"), [(0, "failed to listen"), (1, "timed out")])
def test_init_distributed_failed_rendezvous_names_reason(monkeypatch, rank, reason):
    """Another program uses the port, or no process listens."""
    monkeypatch.setattr(distributed, "START_TIMEOUT", timedelta(seconds=1))
    with socket.socket() as taken:
        taken.bind(("", 0))
        if rank == 0:
            taken.listen()
        port = taken.getsockname()[1]
        launched = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for name, value in launched.items():
            monkeypatch.setenv(name, str(value))
        with pytest.raises(PipelineError, match="do not find each other") as error, init_distributed():
            pass
    assert f"127.0.0.1 port {port}" in str(error.value) and reason in str(error.value)
