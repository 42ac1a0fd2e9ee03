"""Learning-rate schedule, parameter groups, and optimizers that equal their written-out formulas."""

import math
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from safetensors.torch import save_file

from pipeline_src.model.bert import BertConfig, BertForPretraining, initialise
from pipeline_src.training.checkpoint import WEIGHT, restore_tensors, stored_tensors
from pipeline_src.training.optimizers import (
    MATRICES,
    MOMENTS,
    OPTIMIZERS,
    is_capturable,
    linear_schedule,
    make_optimizer,
    orthogonal,
    set_learning_rate,
    step_count,
)
from tests.unit.training.fake_gpu import fake_gpu, on_device

EVERYWHERE = [name for name in OPTIMIZERS if name != "muon"]  # which moves the blocks' matrices: test_muon.py


def test_linear_schedule_rises_then_falls_to_zero():
    rate = linear_schedule(1e-4, 10, 100)
    assert rate(0) == pytest.approx(1e-5) and rate(9) == pytest.approx(1e-4) and rate(10) == pytest.approx(1e-4)
    assert rate(55) == pytest.approx(5e-5) and rate(100) == 0.0
    assert linear_schedule(1.0, 0, 10)(0) == 1.0


def test_linear_schedule_with_decay_steps_stays_at_peak_until_decay():
    rate = linear_schedule(1.0, 10, 100, 20)
    assert rate(4) == 0.5 and {rate(step) for step in range(9, 81)} == {1.0}
    assert rate(90) == 0.5 and rate(100) == 0.0
    assert [linear_schedule(1.0, 10, 100, 90)(step) for step in range(101)] == [
        linear_schedule(1.0, 10, 100)(step) for step in range(101)
    ]
    assert linear_schedule(1.0, 10, 12, 20)(10) == 0.1  # already falling when the warm-up ends


@pytest.mark.parametrize("name", EVERYWHERE)
def test_make_optimizer_biases_and_layer_norms_have_no_weight_decay(name):
    model = BertForPretraining(BertConfig(50, 64, 1, 1, 128))
    model.bert.pooler.requires_grad_(False)
    decayed, plain = make_optimizer(model, 1e-3, 0.01, name).param_groups
    assert decayed["weight_decay"] == 0.01 and plain["weight_decay"] == 0
    names = {id(parameter): name for name, parameter in model.named_parameters() if "pooler" not in name}
    assert all(names[id(p)].endswith("bias") or "LayerNorm" in names[id(p)] for p in plain["params"])
    assert not any(names[id(p)].endswith("bias") or "LayerNorm" in names[id(p)] for p in decayed["params"])
    assert len(decayed["params"]) + len(plain["params"]) == len(names)


def written_out(name: str, start: torch.Tensor, gradients: list[torch.Tensor], decay: float) -> torch.Tensor:
    """Return the parameters after steps by the papers' update rules, in double precision."""
    weight, m, v = start.double().clone(), torch.zeros_like(start).double(), torch.zeros_like(start).double()
    for step, gradient in enumerate(gradients, 1):
        gradient = gradient.double()
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        first, second = (1.0, 1.0) if name == "bert_adam" else (1 - 0.9**step, 1 - 0.999**step)
        update = (m / first) / ((v / second).sqrt() + 1e-6) + decay * weight
        if name == "lamb":
            update = update * weight.norm() / update.norm()
        weight = weight - 0.01 * update
    return weight.float()


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps_equal_formula(name, decay):
    generator = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 3), (5,))]
    starts = [parameter.detach().clone() for parameter in parameters]
    gradients = [[torch.randn(p.shape, generator=generator) for p in parameters] for _ in range(6)]
    groups = [{"params": parameters, "weight_decay": decay}]
    optimizer = OPTIMIZERS[name](groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6)
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    for number, parameter in enumerate(parameters):
        expected = written_out(name, starts[number], [step[number] for step in gradients], decay)
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_count_is_on_device_of_optimizer_state(name):
    """The count is on the host, unless a fused kernel reads it on the parameter's device."""
    layer = torch.nn.Linear(2, 1, device="meta")
    optimizer = make_optimizer(layer, 0.1, 0.0, name)
    assert step_count(optimizer, layer.weight, 7).device.type == ("meta" if name in ("adamw", "muon") else "cpu")

    layer = torch.nn.Linear(2, 1)
    optimizer = make_optimizer(layer, 0.1, 0.0, name)
    layer(torch.ones(2)).backward()
    optimizer.step()
    count = step_count(optimizer, layer.weight, 1)
    assert torch.equal(count, optimizer.state[layer.weight]["step"])
    assert count.dtype == optimizer.state[layer.weight]["step"].dtype


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_parameter_without_gradient_is_unchanged(name):
    trained, left = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    groups = [{"params": [trained, left], "weight_decay": 0.1}]
    optimizer = OPTIMIZERS[name](groups, lr=0.1, betas=(0.9, 0.999), eps=1e-6)
    trained.grad = torch.ones(2)
    optimizer.step()
    assert (trained != 1).all() and (left == 1).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_make_optimizer_uses_betas_and_epsilon(name):
    """After two steps with gradients 1 and 2, the moments are known, and a large epsilon shortens the step."""
    moved = {}
    for epsilon in (1e-6, 1.0):
        layer = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.ones_(layer.weight)
        optimizer = make_optimizer(layer, 0.1, 0.0, name, (0.5, 0.75), epsilon)
        for gradient in (1.0, 2.0):
            layer.weight.grad = torch.full_like(layer.weight, gradient)
            optimizer.step()
        state = optimizer.state[layer.weight]
        torch.testing.assert_close(state["exp_avg"], torch.full((1, 2), 0.5 * 0.5 + 0.5 * 2))
        torch.testing.assert_close(state["exp_avg_sq"], torch.full((1, 2), 0.75 * 0.25 + 0.25 * 4))
        moved[epsilon] = float((1 - layer.weight).detach().abs().max())
    assert moved[1.0] < (0.9 if name != "lamb" else 1.01) * moved[1e-6]


RATE, MUON_RATE, DECAY, BETAS = 1e-3, 4e-3, 0.01, (0.9, 0.98)


def model() -> BertForPretraining:
    made = BertForPretraining(BertConfig(50, 64, 2, 1, 128))
    initialise(made, torch.Generator().manual_seed(0))
    return made


def give_gradients(parameters, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def newton_schulz(matrix: torch.Tensor) -> torch.Tensor:
    """Compute the iteration of Jordan et al. 2024 in double precision."""
    x = matrix.double() if matrix.shape[0] <= matrix.shape[1] else matrix.double().T
    x = x / x.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x if matrix.shape[0] <= matrix.shape[1] else x.T).float()


@pytest.mark.parametrize("shape", [(48, 48), (48, 64), (64, 48), (32, 128), (128, 32), (1, 9), (16, 2000)], ids=str)
@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_orthogonal_in_float32_equals_newton_schulz_in_float64(shape, condition):
    generator = torch.Generator().manual_seed(1)
    scales = torch.logspace(0, -math.log10(condition), shape[0])[:, None]
    matrices = torch.randn(2, *shape, generator=generator) * scales
    expected = torch.stack([newton_schulz(matrix) for matrix in matrices])
    torch.testing.assert_close(orthogonal(matrices.clone()), expected, rtol=0, atol=1e-5)


def test_orthogonal_of_a_zero_matrix_is_zero():
    assert not orthogonal(torch.zeros(1, 8, 64)).any() and not orthogonal(torch.zeros(1, 8, 8)).any()


def test_muon_on_cpu_step_is_newton_schulz_in_float32():
    """A step in bfloat16 would differ by 1e-2."""
    weight = torch.nn.Parameter(torch.zeros(24, 96))
    weight.grad = torch.randn(24, 96, generator=torch.Generator().manual_seed(2))
    gradient = weight.grad.clone()
    groups = [{"params": [weight], "weight_decay": 0.0, MATRICES: True}]
    OPTIMIZERS["muon"](groups, lr=0.1, betas=BETAS, eps=1e-6).step()
    expected = -0.1 * 0.2 * math.sqrt(96) * newton_schulz(gradient)
    torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("own_decay", [None, 0.3, 0.0])
def test_muon_steps_equal_torch_muon_and_adamw(own_decay):
    mine, reference = model(), model()
    optimizer = make_optimizer(mine, RATE, DECAY, "muon", BETAS, 1e-6, MUON_RATE, own_decay)
    muon_decay = DECAY if own_decay is None else own_decay
    named = dict(reference.named_parameters())
    matrices = {name for name, weight in named.items() if ".encoder.layer." in name and weight.ndim == 2}
    assert len(matrices) == 2 * 6
    plain = {name for name in named if "LayerNorm" in name or name.endswith("bias")}
    decayed = set(named) - plain - matrices
    muon = torch.optim.Muon(
        [named[name] for name in sorted(matrices)],
        lr=MUON_RATE,
        weight_decay=muon_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(
        [
            {"params": [named[name] for name in sorted(decayed)], "weight_decay": DECAY},
            {"params": [named[name] for name in sorted(plain)], "weight_decay": 0.0},
        ],
        lr=RATE, betas=BETAS, eps=1e-6,
    )  # fmt: skip
    for step in range(3):
        give_gradients(mine.parameters(), step)
        give_gradients(reference.parameters(), step)
        for group in optimizer.param_groups:  # as the loop does
            group["lr"] = RATE * group.get("rate", 1.0)
        optimizer.step()
        muon.step()
        adamw.step()
    start = dict(model().named_parameters())
    for name, weight in mine.named_parameters():
        if name not in matrices:
            torch.testing.assert_close(weight, named[name], rtol=1e-6, atol=1e-7, msg=name)
        else:  # torch's orthogonalises in bfloat16, also on a CPU
            moved, expected = weight - start[name], named[name] - start[name]
            assert (moved - expected).norm() < 0.02 * expected.norm(), name


def test_muon_restored_state_continues_identically(tmp_path):
    first, second = model(), model()
    stopped, restored = (make_optimizer(each, RATE, DECAY, "muon", BETAS, 1e-6, MUON_RATE) for each in (first, second))
    give_gradients(first.parameters(), 0)
    stopped.step()
    kinds, parameters = (WEIGHT, *MOMENTS), [dict(each.named_parameters()) for each in (first, second)]
    save_file(stored_tensors(parameters[0], stopped, kinds), tmp_path / "kept")
    restore_tensors(tmp_path / "kept", parameters[1], restored, kinds, 1, "")
    for each, optimizer in ((first, stopped), (second, restored)):
        give_gradients(each.parameters(), 1)
        optimizer.step()
    assert all(torch.equal(weight, parameters[1][name]) for name, weight in parameters[0].items())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_make_optimizer_blocks_learning_rate_moves_only_matrices_of_blocks(name):
    one_rate, two_rates = model(), model()
    optimizers = [
        make_optimizer(one_rate, RATE, DECAY, name),
        make_optimizer(two_rates, RATE, DECAY, name, blocks_learning_rate=3 * RATE),
    ]
    for module, optimizer in zip((one_rate, two_rates), optimizers, strict=True):
        give_gradients(module.parameters(), 0)
        set_learning_rate(optimizer, RATE)
        optimizer.step()
    start, one, two = (dict(module.named_parameters()) for module in (model(), one_rate, two_rates))
    for weight, before in start.items():
        times = 3 if ".encoder.layer." in weight and before.ndim == 2 else 1
        moved = times * (one[weight] - before)
        torch.testing.assert_close(two[weight] - before, moved, rtol=1e-4, atol=1e-7, msg=weight)


def test_make_optimizer_muon_rate_defaults_to_learning_rate():
    groups = make_optimizer(model(), RATE, DECAY, "muon").param_groups
    assert [group["rate"] for group in groups if group.get(MATRICES)] == [1.0]


def test_muon_step_length_is_independent_of_gradient_scale():
    lengths = []
    for size in (1e-6, 1.0, 1e4):
        made = model()
        weight = made.bert.encoder.layer[0].intermediate["dense"].weight
        before = weight.detach().clone()
        optimizer = make_optimizer(made, RATE, 0.0, "muon")
        give_gradients(made.parameters(), 0)
        weight.grad.mul_(size)
        optimizer.step()
        lengths.append(float((weight.detach() - before).square().mean().sqrt()) / RATE)
    assert lengths == pytest.approx([lengths[0]] * 3, rel=0.02) and 0.1 < lengths[0] < 0.3  # 0.2 in Liu et al.


# ---------------------------------------------------------------- stacked matrices, steps that can be captured


def muon(module: torch.nn.Module, **options) -> torch.optim.Optimizer:
    return make_optimizer(module, RATE, DECAY, "muon", BETAS, 1e-6, MUON_RATE, **options)


def take_steps(module, optimizer, first: int, last: int) -> None:
    """Take steps of two microbatches with random gradients and changing learning rates."""
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        set_learning_rate(optimizer, RATE / (1 + step))
        optimizer.zero_grad()
        for _ in range(2):
            sum((each * torch.randn(each.shape, generator=generator)).sum() for each in module.parameters()).backward()
        optimizer.step()


def matrices_of(optimizer) -> Iterator[torch.nn.Parameter]:
    return (matrix for group in optimizer.param_groups if group.get(MATRICES) for matrix in group["params"])


def memories(tensors) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


def assert_stacked(optimizer) -> None:
    """Assert that parameters, gradients and momentum of each of three shapes lie in one tensor."""
    matrices = list(matrices_of(optimizer))
    momenta = [optimizer.state[matrix]["exp_avg"] for matrix in matrices]
    for tensors in (matrices, [matrix.grad for matrix in matrices], momenta):
        assert len(memories(tensors)) == 3 and len({tensor.data_ptr() for tensor in tensors}) == 12


def assert_equal(first: torch.nn.Module, second: torch.nn.Module) -> None:
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_muon_resumed_stacked_steps_equal_unstacked_steps(tmp_path):
    single, stacked, resumed = model(), model(), model()
    optimizers = [muon(single), muon(stacked, stacked=True), muon(resumed, stacked=True)]
    assert_equal(single, stacked)
    for made, optimizer in zip((single, stacked), optimizers, strict=False):
        take_steps(made, optimizer, 0, 4)
    assert_equal(single, stacked)
    assert_stacked(optimizers[1])

    kinds = (WEIGHT, *MOMENTS)
    save_file(stored_tensors(dict(stacked.named_parameters()), optimizers[1], kinds), tmp_path / "kept")
    for _ in range(2):  # from nothing, and over steps that were taken
        restore_tensors(tmp_path / "kept", dict(resumed.named_parameters()), optimizers[2], kinds, 4, "")
        assert_stacked(optimizers[2])
        assert_equal(stacked, resumed)
        take_steps(resumed, optimizers[2], 4, 6)
    take_steps(single, optimizers[0], 4, 6)
    assert_equal(single, resumed)
    for first, second in zip(matrices_of(optimizers[0]), matrices_of(optimizers[2]), strict=True):
        assert torch.equal(optimizers[0].state[first]["exp_avg"], optimizers[2].state[second]["exp_avg"])
        assert "exp_avg_sq" not in optimizers[2].state[second]  # zeros, which take memory


def test_stack_collects_gradients_from_other_memory():
    """DistributedDataParallel keeps gradients in its buckets."""
    single, stacked = model(), model()
    for made, optimizer in ((single, muon(single)), (stacked, muon(stacked, stacked=True))):
        for step in range(3):
            give_gradients(made.parameters(), step)
            optimizer.step()
            optimizer.zero_grad()
    assert_equal(single, stacked)
    assert all(not parameter.grad.any() for parameter in stacked.parameters())


def test_stacked_matrix_without_gradient_is_unchanged():
    single, stacked = model(), model()
    for made, optimizer in ((single, muon(single)), (stacked, muon(stacked, stacked=True))):
        take_steps(made, optimizer, 0, 2)
        give_gradients(made.parameters(), 2)
        left = made.bert.encoder.layer[1].intermediate["dense"].weight
        left.grad, before = None, left.detach().clone()
        optimizer.step()
        assert torch.equal(left, before)
    assert_equal(single, stacked)


@pytest.mark.parametrize("moved", ["parameter", "momentum"])
def test_stack_moved_after_creation_is_rejected(moved):
    """Otherwise the step would change memory that nothing reads."""
    made = model()
    optimizer = muon(made, stacked=True)
    take_steps(made, optimizer, 0, 1)
    if moved == "parameter":
        made.double()
    else:
        state = optimizer.state[next(matrices_of(optimizer))]
        state["exp_avg"] = state["exp_avg"].clone()
    with pytest.raises(RuntimeError, match="moved"):
        optimizer.step()


def test_muon_views_of_shared_memory_are_not_stacked():
    full = torch.randn(2, 6, 4)
    matrices = [torch.nn.Parameter(part) for part in full]
    groups = [{"params": matrices, "weight_decay": 0.0, MATRICES: True}]
    OPTIMIZERS["muon"](groups, lr=0.1, betas=BETAS, eps=1e-6, stacked=True)
    assert memories(matrices) == memories([full])


def rates_as_tensors(optimizer) -> torch.optim.Optimizer:
    """Make learning rates tensors, as on a GPU."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    return optimizer


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_muon_compiled_step_is_one_graph_per_shape(backend):
    from torch._dynamo.testing import CompileCounterWithBackend  # takes a second to import

    counter = CompileCounterWithBackend(backend)
    numbers, tensors, compiled, single = model(), model(), model(), model()
    take_steps(numbers, muon(numbers, stacked=True), 0, 3)
    take_steps(tensors, rates_as_tensors(muon(tensors, stacked=True)), 0, 3)
    compiler = partial(torch.compile, fullgraph=True, dynamic=False, backend=counter)
    optimizer = rates_as_tensors(muon(compiled, stacked=True))
    optimizer.compile(compiler)
    take_steps(compiled, optimizer, 0, 3)
    assert counter.frame_count == 3  # of as many shapes, at three rates
    assert_equal(tensors, compiled)
    take_steps(single, rates_as_tensors(muon(single)), 0, 3)
    assert_equal(tensors, single)
    for first, second in zip(numbers.parameters(), tensors.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_set_learning_rate_fills_number_or_tensor(name):
    optimizer = make_optimizer(model(), RATE, DECAY, name, blocks_learning_rate=MUON_RATE)
    set_learning_rate(optimizer, 0.5)
    assert not is_capturable(optimizer)
    rates = [2.0, 0.5, 0.5] if name == "muon" else [0.5, 0.5, 2.0]
    assert [group["lr"] for group in optimizer.param_groups] == rates

    tensors = [group["lr"] for group in rates_as_tensors(optimizer).param_groups]
    set_learning_rate(optimizer, 1.0)
    assert [float(tensor) for tensor in tensors] == [2 * rate for rate in rates]
    assert all(group["lr"] is tensor for group, tensor in zip(optimizer.param_groups, tensors, strict=True))


@pytest.mark.parametrize("name", ["bert_adam", "lamb"])
def test_optimizer_tensor_rates_equal_number_rates(name):
    numbers, scalars = model(), model()
    take_steps(numbers, make_optimizer(numbers, RATE, DECAY, name), 0, 4)
    optimizer = rates_as_tensors(make_optimizer(scalars, RATE, DECAY, name))
    for group in optimizer.param_groups:
        group["capturable"] = True
    take_steps(scalars, optimizer, 0, 4)
    for first, second in zip(numbers.parameters(), scalars.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-7)


# The last case is Muon as it moves matrices that are not stacked.
@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build asks for its driver")
@pytest.mark.parametrize(
    ("name", "options", "num_stacks"),
    [*((name, {}, 3 if name == "muon" else 0) for name in OPTIMIZERS), ("muon", {"stacked": False}, 12)],
)
def test_optimizer_gpu_step_does_not_synchronise(name, options, num_stacks):
    gpu = torch.device("cuda:0")
    with fake_gpu(gpu) as (_, watch):
        made = on_device(lambda: BertForPretraining(BertConfig(50, 64, 2, 1, 128)), gpu)
        optimizer = make_optimizer(made, RATE, DECAY, name, BETAS, 1e-6, MUON_RATE, **options)
        rates = [group["lr"] for group in optimizer.param_groups]
        for _ in range(3):
            set_learning_rate(optimizer, RATE)
            # Muon makes its stacked gradients here, before there are any.
            optimizer.zero_grad(set_to_none=False)
            for parameter in made.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            # Only the last step is looked at: a graph would capture it.
            watch.operators = []
            optimizer.step()
    assert not watch.waits and not watch.wrong
    # What a captured step makes anew, it makes in every replay.
    assert not [operator for operator, _ in watch.operators if operator.startswith(("zeros", "_foreach_copy_"))]
    assert is_capturable(optimizer)
    assert all(group["lr"] is rate for group, rate in zip(optimizer.param_groups, rates, strict=True))
    state = [tensor for tensors in optimizer.state.values() for tensor in tensors.values()]
    assert {(tensor.dtype, tensor.device) for tensor in [*rates, *state]} == {(torch.float32, gpu)}
    assert len({matrix.untyped_storage()._cdata for matrix in matrices_of(optimizer)}) == num_stacks
    assert (torch.bfloat16 in watch.dtypes) == (name == "muon")
