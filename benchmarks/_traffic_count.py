"""Count the bytes that a training step reads and writes, as a GPU takes it, without a GPU.

``eager`` runs a step on tensors without values and adds up each operator's operands and results. ``compiled`` lets
Inductor plan the fused kernels of the compiled parts, and adds up what these read and write; the rest of the step is
counted as in ``eager``. Caches are ignored: an operator reads each operand once. The code paths are those of a GPU, the
fusions those of Inductor's back end for CPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import _pretrain_sides as sides
from benchmarks._gpu_steps import Shape
from pipeline_src.model import attention, bert, losses
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.training.batches import batch_tensors
from pipeline_src.training.distributed import Distributed
from pipeline_src.training.optimizers import Muon
from pipeline_src.training.trainer import Trainer

# Operators that make a tensor without writing to it.
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# Operators that overwrite their first operand without reading it.
OVERWRITES = {"copy_", "fill_", "zero_"}
# Operators that read as many elements of their first operand as they return.
LOOKUPS = {"embedding", "index_select", "index", "gather", "nll_loss_forward"}
# Operators that change as many elements of their first operand as their last operand has.
SCATTERS = {"scatter_add_", "index_put_", "_index_put_impl_"}
# Operator -> its kind in the tables. All others are element-wise operations, sums and copies.
KINDS = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), "matrix products"),
    **dict.fromkeys(("_flash_attention_forward", "_flash_attention_backward"), "attention"),
    **dict.fromkeys(("native_layer_norm", "native_layer_norm_backward"), "LayerNorm"),
    **dict.fromkeys(("gelu", "gelu_backward"), "GELU"),
    **dict.fromkeys(("native_dropout", "native_dropout_backward"), "dropout"),
    "_to_copy": "casts",
}
OTHERS = "other operators"
FUSED = "fused kernels"
OPTIMIZER = "optimizer"


def footprint(tensor: Tensor) -> int:
    # The bytes of the elements that differ in memory: an expanded dimension counts once.
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride or not size else 1
    return count * tensor.element_size()


def operator_name(operator: Any) -> str:
    name: str = operator._schema.name
    return name.partition("::")[2]


def moved_bytes(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Return how many bytes a call of an ATen operator reads and writes. Views move none."""
    schema = operator._schema
    name = operator_name(operator)
    given = [part for part in tree_leaves((args, kwargs)) if isinstance(part, Tensor)]
    results = [part for part in tree_leaves(result) if isinstance(part, Tensor)]
    if not schema.name.startswith("aten::") or name in ALLOCATIONS:
        return 0
    if name in SCATTERS:
        return 3 * footprint(given[-1])
    memory = {part.untyped_storage()._cdata for part in given}
    if not schema.is_mutable and all(part.untyped_storage()._cdata in memory for part in results):
        return 0
    # Tensors passed as `out` are written only. They are the results too.
    outs = [kwargs[argument.name] for argument in schema.arguments if argument.is_out and argument.name in kwargs]
    operands = [part for part in given if all(part is not out for out in outs)]
    if name in OVERWRITES or name in LOOKUPS:
        operands = operands[1:]
    # An operator that changes lists of tensors in place returns none.
    if schema.is_mutable and not results:
        is_list = isinstance(args[0], list | tuple)
        results = list(args[0]) if is_list else given[:1]
    written = sum(map(footprint, results))
    looked_up = written if name in LOOKUPS else 0
    return sum(map(footprint, operands)) + written + looked_up


class Traffic(TorchDispatchMode):
    """Context manager that adds up the bytes moved in ``bytes``, by (phase, kind of operator)."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.is_paused = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Otherwise torch would not compile within this mode.
        return True

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = operator(*args, **kwargs)
        if not self.is_paused:
            self.add(KINDS.get(operator_name(operator), OTHERS), moved_bytes(operator, args, kwargs, result))
        return result

    def add(self, kind: str, number: int) -> None:
        self.bytes[self.phase, kind] += number


def eager(shape: Shape) -> Traffic:
    traffic = Traffic()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        trainer, batch = _make_step(shape)
        values = {name: mode.from_tensor(part, static_shapes=True) for name, part in batch_tensors(batch).items()}
        _count_second_step(trainer, replace(batch, **values), traffic)
    return traffic


def compiled(shape: Shape) -> Traffic:
    traffic = Traffic()
    trainer, batch = _make_step(shape)
    with compile_by(_planner(traffic)):
        bert.compile_parts(trainer.objective, fixed_shapes=True)
        if isinstance(trainer.optimizer, Muon):
            trainer.optimizer.compile()
        _count_second_step(trainer, batch, traffic)
    torch.compiler.reset()
    return traffic


@contextmanager
def compile_by(backend: Any) -> Iterator[None]:
    # Makes torch.compile and Module.compile use this back end.
    compile_function = partial(torch.compile, backend=backend)

    def compile_module(module: nn.Module, **options: Any) -> None:
        module._compiled_call_impl = compile_function(module._call_impl, **options)

    with mock.patch.object(torch, "compile", compile_function), mock.patch.object(nn.Module, "compile", compile_module):
        yield


def _make_step(shape: Shape) -> tuple[Trainer[TensorBatch], TensorBatch]:
    config = replace(shape.config(), attention="flash_varlen")
    has_pairs = config.names.classes["pretraining"] in sides.PAIR_LABELS
    objective = sides.load_objective("mlm")(config, pairs="nsp" if has_pairs else "none").train()
    process = Distributed(0, 1, torch.device("cpu"), torch.bfloat16)
    with gpu_paths():
        trainer = sides.make_benchmark_trainer(objective, process, shape.optimizer)
    (batch,) = shape.examples(1)
    return trainer, TensorBatch.of(batch)


def _count_second_step(trainer: Trainer[TensorBatch], batch: TensorBatch, traffic: Traffic) -> None:
    # The first step makes the optimizer's state, and compiles.
    counts = trainer.objective.loss_counts(batch.workload)
    for _ in range(2):
        traffic.bytes.clear()
        trainer.optimizer.zero_grad()
        with gpu_paths(), traffic:
            traffic.phase = "model"
            trainer.backward(batch, counts, is_last=True, is_own=True)
            traffic.phase = OPTIMIZER
            trainer.update()


@contextmanager
def gpu_paths() -> Iterator[None]:
    # Makes tensors of the CPU take the code paths of a GPU.
    with (
        mock.patch.object(attention, "ALWAYS_MASKED", {"cpu"}),
        mock.patch.object(attention, "apply_dropout", _native_dropout),
        mock.patch.object(bert, "linear_cross_entropy", losses.full_cross_entropy),
        mock.patch.object(bert.SelfAttention, "_project", _fused_projections),
        mock.patch.object(F, "layer_norm", _layer_norm),
        mock.patch.object(Tensor, "is_cuda", property(lambda tensor: True)),
    ):
        yield


def _native_dropout(inner: Tensor, rate: float) -> Tensor:
    return torch.native_dropout(inner, rate, True)[0] if rate else inner


def _fused_projections(block: Any, hidden: Tensor, *projections: nn.Linear) -> Sequence[Tensor]:
    fused = bert.fused_linear(hidden, projections)
    return fused.view(len(hidden), len(projections), block.heads, -1).unbind(1)


_cpu_layer_norm = F.layer_norm


def _layer_norm(inner: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    # A GPU's autocast computes LayerNorm in float32.
    return _cpu_layer_norm(inner.float() if torch.is_autocast_enabled("cpu") else inner, *args, **kwargs)


def _planner(traffic: Traffic) -> Any:
    """Return a back end of torch.compile that plans kernels and counts their bytes, but runs none."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._guards import detect_fake_mode
    from torch._inductor.compile_fx import partition_fn
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.virtualized import V

    def partition(module: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        with V.set_fake_mode(detect_fake_mode()):
            return partition_fn(module, inputs, **options)

    def plan(is_backward: bool) -> Callable[[fx.GraphModule, list[Any]], Any]:
        def compile_graph(module: fx.GraphModule, inputs: list[Any]) -> Any:
            kinds = planned_bytes(module, list(inputs), is_backward)
            outputs = [node.meta["val"] if isinstance(node, fx.Node) else node for node in _outputs(module)]

            def run(*_: Any) -> list[Any]:
                for kind, number in kinds.items():
                    traffic.add(kind, number)
                traffic.is_paused = True
                empty = [
                    torch.empty(part.shape, dtype=part.dtype) if isinstance(part, Tensor) else part for part in outputs
                ]
                traffic.is_paused = False
                return empty

            return make_boxed_func(run)

        return compile_graph

    return aot_autograd(
        fw_compiler=plan(is_backward=False),
        bw_compiler=plan(is_backward=True),
        partition_fn=partition,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )


def _outputs(module: fx.GraphModule) -> Sequence[Any]:
    (node,) = module.graph.find_nodes(op="output")
    outputs: Sequence[Any] = node.args[0]
    return outputs


def planned_bytes(module: fx.GraphModule, inputs: list[Any], is_backward: bool) -> Counter[str]:
    """Return the bytes that Inductor's kernels for a graph of ATen operators read and write, by kind."""
    from torch._guards import detect_fake_mode
    from torch._inductor.compile_fx import _recursive_post_grad_passes, fake_tensor_prop
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    kinds: Counter[str] = Counter()
    with V.set_fake_mode(detect_fake_mode(inputs)):
        fake_tensor_prop(module, inputs, force_allow_non_fake_inputs=True)
        _recursive_post_grad_passes(module, is_inference=False)
        graph = GraphLowering(module, example_inputs=inputs, is_backward=is_backward)
        with V.set_graph_handler(graph), V.set_debug_handler(DebugContext()):
            graph.run(*inputs)
            graph._update_scheduler()
            for kernel in graph.scheduler.nodes:
                # A kernel of torch's own is called by its name, such as extern_kernels.mm.
                name = getattr(kernel.node, "python_kernel_name", None) or ""
                operator = name.removesuffix(".default").rpartition(".")[2]
                kind = KINDS.get(operator, OTHERS) if operator else FUSED
                kinds[kind] += kernel.get_read_write_buffers_sizes()
    return kinds
