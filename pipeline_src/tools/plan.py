"""Tool ``plan``: estimate downloads, disk space, FLOPs and time of each stage before the study runs.

Sizes in bytes are from the catalogue. FLOPs are counted from the model's configuration for sequences of full length, as
papers do. Training time is FLOPs divided by FLOP/s, which are measured on this machine's CPU or given by the user. The
time of a stage on text is its bytes divided by the speed in ``RATES``.
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.messages import amount
from pipeline_src.base.parallel import usable_cores
from pipeline_src.base.paths import START_MODEL
from pipeline_src.base.progress import duration
from pipeline_src.base.registry import objective_spec
from pipeline_src.base.yaml_files import MODELS, parse_yaml
from pipeline_src.finetune.hyperparameter_grid import grid_points
from pipeline_src.model.flops import Workload
from pipeline_src.sources.catalogue import Source, load_source
from pipeline_src.sources.sizes import BYTES_PER_WORD, SourceSize, fetched_bytes, file_bytes, source_size
from pipeline_src.study.finetune import TaskHyperparameters
from pipeline_src.study.machine import load_machine
from pipeline_src.study.preset import PARAMS, preset_text
from pipeline_src.study.study import Study, check_study, load_study

# Speed of the stages on text per CPU core: bytes of .bz2 or of text per second, except tokens per second for
# build_examples and train_word_vectors. Measured by `python -m benchmarks.tenth_of_wikipedia`
# (docs/lab/tenth-of-wikipedia.md).
RATES = {
    "clean": 2.7e6,
    "train_tokenizer": 7e6,
    "tokenize": 5.5e6,
    "build_examples": 30e6,
    "train_word_vectors": 1.7e6,
    "corpus_statistics": 20e6,
}
# Books are cleaned this many times as fast as .bz2 dumps, per byte.
BOOKS_SPEED = 2.5
# In word vector training, the fixed time per token equals the time for this many vector dimensions.
TOKEN_WIDTH = 134
# Assumed download speed, in bytes per second.
DOWNLOAD_RATE = 5e6
# Time of a job's imports and of reading its data.
START_SECONDS = 4
BYTES_PER_TOKEN = 4.5
BYTES_PER_STORED_TOKEN, BYTES_PER_STORED_EXAMPLE = 2.3, 21
# Mean fraction of an example's maximum length that is filled with text, on Wikipedia.
FILL = 0.6
# Tokens of a task's training file: number of examples (GLUE's table 1, the tasks' papers) * mean tokens per example.
# For a task that is not listed, tokens are estimated from the bytes of its files.
TASK_TOKENS = {
    "qqp": 11.6e6,
    "mnli": 15.7e6,
    "qnli": 5.4e6,
    "squad1": 15.6e6,
    "squad2": 23.2e6,
    "swag": 9.7e6,
    "pos": 0.26e6,
    "rotten_tomatoes": 0.21e6,
    **dict.fromkeys(("ner", "conll_pos", "chunks"), 0.26e6),
}
# Mean size of the tasks that are synthetic or made from the corpus.
MADE_TASK_TOKENS, MADE_TASK_BYTES = 40e3, 0.5e6
# BLiMP has 67 files of 1,000 pairs. Each token of a sentence is masked in a copy of its own, so a pair costs about 550
# input tokens; a sentence has about 25.
PARADIGMS, PAIR_TOKENS, SENTENCE_TOKENS = 67, 550, 25
# Bytes per parameter of a model and of a checkpoint, which has the weights and two optimizer moments. Three checkpoints
# are kept: the newest two and the best.
MODEL_BYTES, CHECKPOINT_BYTES, NUM_CHECKPOINTS = 4, 12, 3
# Each output exists twice: in the working tree and in DVC's cache.
COPIES = 2
# FLOPs of a forward pass as a fraction of a training step's FLOPs.
FORWARD = 1 / 3
# Duration of the speed measurement, and maximum FLOPs of one of its steps.
PROBE_SECONDS, PROBE_FLOPS = 5, 2e11
WIDTH = 100
HEADS = ("stage", "jobs", "fetched", "output", "tokens", "FLOPs", "disk", "time", "cost")
ABOUT = "FLOPs, time: full sequences; the optimizer has no FLOPs. disk: outputs twice (DVC's cache), and checkpoints."


@dataclass(frozen=True)
class Devices:
    cores: int
    gpus: int
    # Speed of one GPU, or of one CPU core if no GPU is used.
    flops_per_second: float


@dataclass(frozen=True)
class Stage:
    stage: str
    jobs: int = 1
    # Bytes.
    fetched: float = 0
    written: float = 0
    # Bytes on disk besides the outputs, such as checkpoints.
    extra: float = 0
    # Work in the unit of RATES (bytes or tokens).
    work: float = 0
    tokens: float = 0
    flops: float = 0
    # Maximum numbers of cores and of GPUs that one job can use.
    max_cores: float = math.inf
    max_gpus: float = math.inf

    @property
    def disk(self) -> float:
        return COPIES * self.written + self.extra

    def seconds(self, devices: Devices) -> float:
        # Jobs run in parallel on all cores, or on all GPUs if they are trainings.
        parallel = min(self.jobs, devices.gpus if devices.gpus and self.flops else devices.cores)
        starts = START_SECONDS * self.jobs / parallel
        fetching = self.fetched / DOWNLOAD_RATE
        cores = min(devices.cores, self.max_cores * self.jobs)
        gpus = min(devices.gpus, self.max_gpus * self.jobs)
        text = 0.0
        if self.work:
            text = self.work / (RATES[self.stage] * cores)
        training = self.flops / (devices.flops_per_second * (gpus or cores))
        return starts + fetching + text + training


def add_arguments(parser: argparse.ArgumentParser) -> None:
    cores = usable_cores()
    parser.add_argument("--preset", metavar="NAME", help="plan this study instead of params.yaml, which stays")
    parser.add_argument("--cores", type=int, default=cores, help=f"CPU cores in all (default: this machine's, {cores})")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs that train (default: 0, the CPU trains)")
    parser.add_argument(
        "--teraflops",
        type=float,
        help="10^12 FLOP/s that training reaches on one GPU, or without "
        "GPUs on all cores (default: measured on this machine's CPU in some ten seconds)",
    )
    parser.add_argument("--price", type=float, help="of a GPU for an hour; without GPUs, of the machine for an hour")
    parser.add_argument("--json", action="store_true", help="all figures, in bytes and seconds")


def main(arguments: argparse.Namespace) -> None:
    for option, minimum in {"cores": 1, "gpus": 0, "teraflops": 1e-6, "price": 0}.items():
        value = getattr(arguments, option)
        if value is not None and not minimum <= value < math.inf:
            raise PipelineError("option out of range", value, where=f"--{option}", hint=f"give {minimum} or more")
    if arguments.gpus and arguments.teraflops is None:
        hint = "give --teraflops; docs/your-cluster.md says how to measure it, and lists measured values"
        raise PipelineError("the GPU's speed is not known", where="--gpus", hint=hint)
    name = arguments.preset
    study = load_study(PARAMS) if name is None else check_study(parse_yaml(preset_text(name)), f"{name}.yaml")
    machine = load_machine()
    # This must come before torch is imported.
    machine.choose_code_paths()
    objective = make_objective(study)
    if arguments.teraflops is None:
        rate = probe(study, min(machine.pretrain.threads, arguments.cores))
    else:
        in_all = arguments.teraflops * 1e12
        rate = in_all if arguments.gpus else in_all / arguments.cores
    devices = Devices(arguments.cores, arguments.gpus, rate)
    sizes = {source: source_size(params) for source, params in study.corpus.sources.items()}
    rows = [row_of(stage, devices, arguments.price) for stage in stages_of(study, objective, sizes)]
    totals: dict[str, Any] = {}
    for key in ("jobs", "fetched", "written", "flops", "disk", "seconds"):
        totals[key] = sum(row[key] for row in rows)
    totals["cost"] = None if arguments.price is None else sum(row["cost"] for row in rows)
    plan = {
        "study": name or str(PARAMS),
        "parameters": count_parameters(objective),
        "devices": asdict(devices),
        "stages": rows,
        "totals": totals,
        "notes": [size.note for size in sizes.values() if size.note],
    }
    print(json.dumps(plan, indent=2, allow_nan=False) if arguments.json else as_table(plan))


def row_of(stage: Stage, devices: Devices, price: float | None) -> dict[str, Any]:
    seconds = stage.seconds(devices)
    paid = (devices.gpus if stage.flops else 0) if devices.gpus else 1
    cost = None if price is None else price * paid * seconds / 3600
    amounts = {key: getattr(stage, key) for key in ("stage", "jobs", "fetched", "written", "tokens", "flops", "disk")}
    return amounts | {"seconds": seconds, "cost": cost}


def stages_of(study: Study, objective: Any, sizes: Mapping[str, SourceSize]) -> Iterator[Stage]:
    """Yield the stages in the order of dvc.yaml, with their estimated bytes, tokens and FLOPs.

    Args:
        objective: the study's objective, from ``make_objective``.
        sizes: name of a source -> its size.
    """
    text = sum(size.text for size in sizes.values())
    tokens = text / BYTES_PER_TOKEN
    yield from _fetching(study, sizes)
    yield from _text_stages(study, sizes, text, tokens)
    yield from _pretraining(study, objective)
    yield from _fine_tuning(study, objective)
    yield Stage("evaluate")
    yield Stage("report")


def _fetching(study: Study, sizes: Mapping[str, SourceSize]) -> Iterator[Stage]:
    raw = sum(size.files for size in sizes.values())
    fetched = sum(size.fetched for size in sizes.values())
    archives = max(0, fetched - raw)
    yield Stage("download", len(sizes), fetched, raw, archives)
    yield _start_model(study)
    yield _download_tasks(study)


def _start_model(study: Study) -> Stage:
    entry = Path(study.pretrain.init_from)
    is_fetched = entry.parent == Path(MODELS)
    size = fetched_bytes(load_source(MODELS, entry.stem)) if is_fetched else 0.0
    return Stage("start_model", fetched=size, written=size, extra=size)


def _download_tasks(study: Study) -> Stage:
    tasks = _task_sources(study)
    fetched = sum(map(fetched_bytes, tasks.values()))
    num_made = len(set(study.tasks) - tasks.keys())
    written = fetched + MADE_TASK_BYTES * num_made
    return Stage("download_tasks", fetched=fetched, written=written, extra=fetched)


def _text_stages(study: Study, sizes: Mapping[str, SourceSize], text: float, tokens: float) -> Iterator[Stage]:
    cleaned = 0.0
    for name, size in sizes.items():
        is_dump = study.corpus.sources[name].kind == "wikipedia"
        cleaned += size.files if is_dump else size.files / BOOKS_SPEED
    yield Stage("clean", len(sizes), written=text, work=cleaned)
    vocab_size = study.vocabulary.vocab_size
    yield Stage("train_tokenizer", written=30 * vocab_size, work=text)
    yield Stage("tokenize", written=BYTES_PER_STORED_TOKEN * tokens, work=text, tokens=tokens)
    read = tokens * study.examples.dupe_factor
    index = 0.0
    for _, length in study.examples.max_seq_length:
        num_examples = read / (FILL * length)
        index += BYTES_PER_STORED_EXAMPLE * num_examples
    yield Stage("build_examples", written=index, work=read, tokens=read)
    yield Stage("corpus_statistics", work=text)
    vectors = study.word_vectors
    # Time per token is proportional to TOKEN_WIDTH + width.
    effort = tokens * vectors.epochs * (1 + vectors.width / TOKEN_WIDTH)
    written = 4 * vocab_size * vectors.width
    yield Stage("train_word_vectors", written=written, work=effort, max_cores=1)


def _pretraining(study: Study, objective: Any) -> Iterator[Stage]:
    parameters = count_parameters(objective)
    num_models = len(study.pretrain.keep_checkpoint_steps) / 2
    for phase, steps in study.pretrain.steps:
        separator = "@" if phase in study.pretrain.later_phases else "_"
        yield Stage(
            f"pretrain{separator}{phase}",
            written=(CHECKPOINT_BYTES + MODEL_BYTES * num_models) * parameters,
            extra=NUM_CHECKPOINTS * CHECKPOINT_BYTES * parameters,
            tokens=steps * study.pretrain.batch_size(phase) * getattr(study.examples.max_seq_length, phase),
            flops=phase_flops(study, objective, phase),
            max_cores=load_machine().pretrain.threads,
        )


def _fine_tuning(study: Study, objective: Any) -> Iterator[Stage]:
    parameters = count_parameters(objective)
    tasks = _task_sources(study)
    jobs = len(study.tasks) * len(study.finetune.seeds)
    count = 0.0
    flops = 0.0
    for task in study.tasks:
        recipe = study.finetune.recipe(task)
        trained = task_tokens(study, task, tasks.get(task))
        count += trained
        # With feature_layers the encoder is frozen, so it runs only forward.
        share = FORWARD if recipe.feature_layers else 1
        work = workload(round(trained / recipe.max_length), recipe.max_length)
        flops += share * objective.config.training_flops(work)
        # An LSTM multiplies each weight once a token; the backward pass takes twice as much.
        flops += 6 * _lstm_weights(study, recipe, objective.config) * trained
    written = jobs * MODEL_BYTES * parameters
    extra = CHECKPOINT_BYTES * parameters
    threads = load_machine().finetune.threads
    yield Stage(
        "finetune",
        jobs,
        written=written,
        extra=extra,
        tokens=count,
        flops=flops,
        max_cores=threads,
        max_gpus=1,
    )
    params = study.interpretation
    pairs = PARADIGMS * min(params.pairs_per_set or 1000, 1000) * len(params.pair_sets)
    # Each text is read twice: by the trained model, and by a model with random weights.
    read = 2 * (4 * params.words + PAIR_TOKENS * pairs)
    work = workload(read // SENTENCE_TOKENS, SENTENCE_TOKENS)
    yield Stage("interpret", tokens=read, flops=FORWARD * objective.config.training_flops(work), max_gpus=1)


def _lstm_weights(study: Study, recipe: TaskHyperparameters, config: Any) -> int:
    import torch

    from pipeline_src.finetune.feature_based import BiLSTM, FrozenLayers

    # On the device "meta", weights have shapes but no values.
    with torch.device("meta"):
        if recipe.feature_layers is not None:
            layers = FrozenLayers(recipe.feature_layers, config.num_hidden_layers, config.hidden_size)
            return count_parameters(layers.lstm)
        if study.finetune.bilstm:
            return count_parameters(BiLSTM(config.hidden_size, config.hidden_size))
    return 0


def _task_sources(study: Study) -> Mapping[str, Source]:
    from pipeline_src.tasks.download_tasks import fetched_sources

    return fetched_sources(study.task_source, study.tasks, study.interpretation.pair_sets)


def task_tokens(study: Study, task: str, source: Source | None) -> float:
    # Tokens of all fine-tunings of a task: all seeds, grid points, epochs and kinds of initial weights.
    rows = (TASK_TOKENS.get(task) or file_bytes(source) / BYTES_PER_WORD) if source else MADE_TASK_TOKENS
    recipe = study.finetune.recipe(task)
    points = list(grid_points(recipe))
    if recipe.random_baseline:
        points += grid_points(recipe.starting_from("random"))
    return rows * sum(point.epochs for point in points) * len(study.finetune.seeds)


def workload(sequences: int, length: int, predictions: int = 0, outputs: int | None = None) -> Workload:
    """Describe a batch of sequences of full length, to count its FLOPs.

    Args:
        sequences: number of sequences.
        length: tokens per sequence.
        predictions: number of predicted tokens in the batch.
        outputs: number of positions that the last block computes. None: all.
    """
    tokens = sequences * length
    outputs = tokens if outputs is None else outputs
    return Workload(sequences, tokens, tokens * length, predictions, outputs, outputs * length)


def count_parameters(objective: Any) -> int:
    # Shared (tied) parameters are counted once.
    return sum(parameter.numel() for parameter in objective.parameters())


def phase_flops(study: Study, objective: Any, phase: str) -> float:
    # Includes ELECTRA's generator and the forward passes of a teacher.
    steps, length = getattr(study.pretrain.steps, phase), getattr(study.examples.max_seq_length, phase)
    batch = study.pretrain.batch_size(phase)
    tokens, predictions = batch * length, round(predicted_share(study) * batch * length)
    outputs = tokens if objective.spec.causal else min(tokens, predictions + batch)
    return float(steps) * objective.training_flops(workload(batch, length, predictions, outputs))


def predicted_share(study: Study) -> float:
    collator = objective_spec(study.pretrain.objective).collator
    return {"clm": 1.0, "none": 0.0}.get(collator, study.mask_prob)


def make_objective(study: Study, teacher: Study | None = None) -> Any:
    """Build a study's pretraining objective on torch's meta device, which allocates no memory.

    Args:
        teacher: study whose model is used as the teacher if the objective needs one and the folder
            ``pretrain.teacher`` does not exist yet. None: ``study`` itself.
    """
    from pipeline_src.model.bert import load_architecture, uninitialised
    from pipeline_src.model.hub import load_config
    from pipeline_src.pretrain.objective import load_objective

    kind = load_objective(study.pretrain.objective)

    def config_of(source: Study) -> Any:
        for folder in (Path(source.pretrain.init_from), START_MODEL) if source.pretrain.continued else ():
            if (folder / "config.json").exists():
                return load_config(folder)
        config = load_architecture(source.model.architecture).config
        return config.from_params(source.model, source.vocabulary.vocab_size, kind.spec.causal)

    with uninitialised():
        params = study.objectives.of(study.pretrain.objective)
        objective = kind(config_of(study), study.examples.pair_objective, params)
        if kind.spec.needs_teacher:
            folder = Path(study.pretrain.teacher)
            known = (folder / "config.json").exists()
            objective.set_teacher(kind.build_teacher(load_config(folder) if known else config_of(teacher or study)))
    return objective


def probe(study: Study, threads: int, seconds: float = PROBE_SECONDS) -> float:
    """Measure the FLOP/s per core of training the study's model on ``threads`` cores.

    The time of the optimizer's update is included.

    Args:
        seconds: duration of the measurement.
    """
    import torch
    from torch.utils.benchmark import Timer

    from pipeline_src.training.optimizers import make_optimizer

    objective = make_objective(study)
    # Measure plain MLM if the objective has no MLM head on its main model (ELECTRA, TinyBERT).
    if objective.predictor != "model":
        pretrain = study.pretrain.model_copy(update={"objective": "mlm"})
        objective = make_objective(study.model_copy(update={"pretrain": pretrain}))
    objective.to_empty(device="cpu")
    objective.tie()
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    phase = next(phase for phase, steps in study.pretrain.steps if steps)
    length = getattr(study.examples.max_seq_length, phase)
    share, flops = predicted_share(study), objective.config.training_flops
    sequences = int(PROBE_FLOPS / max(1, flops(workload(1, length, round(share * length)))))
    sequences = max(1, min(sequences, study.pretrain.train_batch_size))
    work = workload(sequences, length, max(1, round(share * sequences * length)))
    ids = torch.randint(5, objective.config.vocab_size, (work.tokens,))
    ends = torch.arange(0, work.tokens + 1, length)
    predicted = torch.randperm(work.tokens)[: work.predictions].sort()[0]

    def step() -> None:
        objective.token_logits(ids, torch.zeros_like(ids), ends, predicted, length).logsumexp(-1).sum().backward()

    # Run one step first, so that the optimizer has gradients.
    step()
    update = make_optimizer(objective, 1e-9, 0.0, study.pretrain.optimizer).step
    step_seconds, update_seconds = (
        Timer("call()", globals={"call": call}, num_threads=threads).blocked_autorange(min_run_time=seconds / 2).median
        for call in (step, update)
    )
    steps_per_update = study.pretrain.train_batch_size / sequences
    return flops(work) / (step_seconds + update_seconds / steps_per_update) / threads


def as_table(plan: Mapping[str, Any]) -> str:
    devices = plan["devices"]
    gpus = f"{devices['gpus']} GPUs, " if devices["gpus"] else ""
    rate = f"{amount(devices['flops_per_second'])}FLOP/s each"
    parameters = amount(plan["parameters"])
    lines = [f"{plan['study']}: {parameters} parameters, on {gpus}{devices['cores']} cores, {rate}", ""]
    lines.append(_line(HEADS))
    lines += map(_row, plan["stages"])
    lines.append("-" * WIDTH)
    lines.append(_row({"stage": "total", **plan["totals"]}))
    lines.append("")
    lines += textwrap.wrap(ABOUT, WIDTH)
    for note in plan["notes"]:
        lines += textwrap.wrap(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines)


def _row(row: Mapping[str, Any]) -> str:
    amounts = [amount(row.get(name, 0)) for name in ("fetched", "written", "tokens", "flops", "disk")]
    cost = "-" if row["cost"] is None else f"{row['cost']:,.2f}"
    return _line([row["stage"], str(row["jobs"]), *amounts, duration(row["seconds"]), cost])


def _line(cells: Sequence[str]) -> str:
    return f"{cells[0]:<18}{cells[1]:>5}" + "".join(f" {cell:>10}" for cell in cells[2:])
