"""Data-parallel training of one process: what is launched when, and in which types."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as param_group

from pipeline_src.models.bert import BertConfig, initialise
from pipeline_src.models.heads import BertForPretraining
from pipeline_src.training.distributed import Distributed, gradient_sync
from pipeline_src.training.sharding import FULL, OPTIMISER, part_of, shard, whole

CPU = torch.device("cpu")
BLOCKS = 3


@pytest.fixture
def group(tmp_path) -> Iterator[None]:
    """A world of one process, with which torch nevertheless exchanges everything."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Sum(nn.Module):
    """A small model of several megabytes, and a loss over it."""

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
    """Note when the backward pass has left each block."""
    for number, block in enumerate(objective.model.bert.encoder.layer):
        block.register_full_backward_hook(lambda *_, number=number: events.append(f"block {number}"))


def assert_overlaps(events: list[str]) -> None:
    """Gradients of the last block are on their way before the backward pass is through the first."""
    assert events.count("launch") > 1
    assert events.index("launch") < events.index("block 1") < events.index("block 0")


@pytest.mark.usefixtures("group")
def test_data_parallel_exchange_overlaps_the_backward_pass():
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
@pytest.mark.parametrize("how", [OPTIMISER, FULL])
def test_sharded_exchange_overlaps_the_backward_pass_and_is_one_a_step(monkeypatch, how):
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
    assert events.count("launch") == (once if how == OPTIMISER else 2 * once)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("how", [OPTIMISER, FULL])
def test_in_bfloat16_what_is_kept_and_summed_is_float32(how):
    """Under autocast, as on a GPU, losses and gradients are those without sharding."""
    plain, sharded = small_model(), small_model()
    shard(sharded, CPU, how)
    losses, norms = [], []
    for objective in (plain, sharded):
        with gradient_sync(objective, last=True):
            with torch.autocast("cpu", torch.bfloat16):
                loss = objective(ids(0))
            loss.backward()
        losses.append(loss.item())
        norms.append(whole(nn.utils.clip_grad_norm_(objective.parameters(), 1.0)).item())
        kept = {tensor.dtype for parameter in objective.parameters() for tensor in (parameter, parameter.grad)}
        assert kept == {torch.float32}
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    total = torch.stack([whole(parameter.grad).norm() for parameter in sharded.parameters()]).norm()
    assert total.item() == pytest.approx(1, rel=1e-3)  # clipped


@pytest.mark.usefixtures("group")
def test_a_whole_tensor_becomes_parts_and_whole_again():
    sharded, other = small_model(), small_model()
    shard(sharded, CPU, FULL)
    for parameter, expected in zip(sharded.parameters(), other.parameters(), strict=True):
        assert torch.equal(whole(part_of(expected.detach(), parameter)), expected)
        assert part_of(expected, expected) is expected and whole(expected) is expected
