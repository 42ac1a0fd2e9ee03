"""Tool ``export``: a model for sentence-transformers, transformers and a hub, or pretraining examples as Parquet."""

from __future__ import annotations

import argparse
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory, read_json, write_json
from pipeline_src.common.paths import CORPUS, DEFAULT_MODEL, PRETRAIN_RESULTS, PRETRAINED, VOCABULARY
from pipeline_src.common.progress import Progress
from pipeline_src.config.study import load_study
from pipeline_src.download.hub import clean_warnings, without_token
from pipeline_src.examples.token_store import SPLITS
from pipeline_src.interpretation.model import ProbedModel
from pipeline_src.models.hub import CARD, MAX_LENGTH
from pipeline_src.models.model_card import POOLED, imported_card, sentence_card
from pipeline_src.models.tokenizer_config import state_inputs
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tools.show_examples import open_study_examples

MAIN = "main"  # branch of a hub's repository that has the final model
STATE = "training_state/state.json"
MODES = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}  # name here -> in sentence-transformers
MODEL_OPTIONS: dict[str, Any] = {"model": DEFAULT_MODEL, "pooling": "mean", "normalise": False}  # with their defaults
HUB_OPTIONS: dict[str, Any] = {"babylm": False, "push": None}
EXAMPLE_OPTIONS: dict[str, Any] = {"phase": "phase1", "split": "train"}
OPTIONS = {"sentence-transformers": MODEL_OPTIONS, "hub": MODEL_OPTIONS | HUB_OPTIONS, "parquet": EXAMPLE_OPTIONS}
DATA_ORDER = "data_order.json"
# words of training text after which BabyLM 2025 evaluates a model, and how far from them the model may be
MILESTONES = [digit * power for power in (10**6, 10**7, 10**8) for digit in range(1, 10)] + [10**9]
MAX_OFF_MILESTONE = 0.05
MAX_EXAMPLES_PER_FILE = 1 << 16
IGNORED = -100  # label of positions at which nothing is predicted, as in transformers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line arguments. Options of a format have no default here, to see which ones are given."""
    parser.add_argument("output", type=Path, help="folder to write; must not exist")
    parser.add_argument(
        "--format", choices=OPTIONS, required=True,
        help="sentence-transformers: a model's folder for that library and transformers; hub: such a folder for the "
        "model (main) and for each model kept on the way (step-N); parquet: the examples of a phase",
    )  # fmt: skip
    model = parser.add_argument_group("model")
    model.add_argument("--model", type=Path, help=f"folder of the model (default: {DEFAULT_MODEL})")
    model.add_argument("--pooling", choices=POOLED, help="how token vectors become a text's (default: mean)")
    model.add_argument("--normalise", action="store_true", default=None, help="divide each vector by its length")
    hub = parser.add_argument_group("hub")
    hub.add_argument(
        "--babylm", action="store_true", default=None,
        help="name models near 1, 2, ... 10, 20, ... million words of training chck_1M and so on, as BabyLM 2025 does",
    )  # fmt: skip
    hub.add_argument("--push", metavar="OWNER/NAME", help="upload the folders to this repository of a hub")
    examples = parser.add_argument_group("examples")
    examples.add_argument("--phase", help="default: phase1")
    examples.add_argument("--split", choices=SPLITS, help="default: train")


def main(arguments: argparse.Namespace) -> None:
    """Write the folder that ``--format`` asks for."""
    output, kind = arguments.output, arguments.format
    given = {
        name: value
        for name in (*MODEL_OPTIONS, *HUB_OPTIONS, *EXAMPLE_OPTIONS)
        if (value := getattr(arguments, name)) is not None
    }
    for name in given.keys() - OPTIONS[kind].keys():
        raise PipelineError("an option of another format", f"--{name}", where=f"--format {kind}", hint="leave it out")
    if output.exists():
        raise PipelineError("the folder exists already", output, hint="name another, or remove it")
    WRITERS[kind](output, **{**OPTIONS[kind], **given})


def export_examples(output: Path, phase: str, split: str, per_file: int = MAX_EXAMPLES_PER_FILE) -> None:
    """Write the examples of a phase and split as Parquet, ``per_file`` in a file, with the study's own masks.

    Examples of the split ``validation`` are masked as for the validation loss, whatever the study's rate and seed.
    Columns have the names of transformers: ``input_ids`` and ``token_type_ids`` without padding, ``labels`` with
    -100 where nothing is predicted, and ``next_sentence_label`` if examples are pairs.
    """
    study = load_study()
    if split == "train" and study.pretrain.masking.dynamic:
        raise PipelineError(
            "dynamic masks cannot be written to files", "pretrain.masking.dynamic: true", where="params.yaml",
            hint="set it to false; examples.dupe_factor gives several masks of each text",
        )  # fmt: skip
    examples = open_study_examples(study, phase, split, load_tokenizer(VOCABULARY))
    with atomic_directory(output) as folder, Progress("exporting", len(examples), "example") as progress:
        for start in range(0, len(examples), per_file):
            stop = min(start + per_file, len(examples))
            batch = examples.batch(np.arange(start, stop))
            labels = np.full_like(batch.ids, IGNORED)
            labels[batch.predicted + examples.collator.label_shift] = batch.labels
            flat = {"input_ids": batch.ids, "token_type_ids": batch.segments, "labels": labels}
            bounds = batch.cu_seqlens[1:-1]
            table = pd.DataFrame({name: np.split(values, bounds) for name, values in flat.items()})
            if examples.has_pairs:
                table["next_sentence_label"] = batch.pair_label
            table.to_parquet(folder / f"examples-{start // per_file:05d}.parquet", index=False)
            progress.advance(len(table))
    print(f"{len(examples):,} examples in {output}")


def export_revisions(output: Path, model: Path, pooling: str, normalise: bool, babylm: bool, push: str | None) -> None:
    """Write a folder for each revision (branch), and upload these folders or print the commands that do."""
    steps, results = kept_models(model), phase_results(model)
    names = {step: f"step-{step}" for step in steps if steps[step] != model}
    if babylm and not results:
        hint = "leave it out; without the results of the training, nothing tells the words that were read"
        raise PipelineError("no phase of this study trained the model", model, where="--babylm", hint=hint)
    if babylm:
        names |= babylm_names([*steps], results)
    folders = {name: steps[step] for step, name in names.items()} | {MAIN: model}
    if push is not None:
        with hub_errors(push) as hub:
            hub.whoami()  # a hub that cannot be reached, or refuses the token, is an error before any work
    with atomic_directory(output) as unfinished:
        for name, path in folders.items():
            write_sentence_transformers(path, unfinished / name, pooling, normalise)
            if results:
                write_json(unfinished / name / DATA_ORDER, data_order(results))
    if push is None:
        print(f"{len(folders)} revisions in {output}; to upload them, after `hf auth login`:")
        print(upload_commands("USER/NAME", output, [*folders]))
        return
    remaining = [*folders]
    try:
        with hub_errors(push) as hub:
            print(hub.create_repo(push, exist_ok=True))
            while remaining:
                name = remaining[0]
                if name != MAIN:
                    hub.create_branch(push, branch=name, exist_ok=True)
                print(hub.upload_folder(repo_id=push, folder_path=output / name, revision=name, delete_patterns="*"))
                remaining.pop(0)
    except PipelineError as error:
        hint = f"the folders are written; upload the others by\n{upload_commands(push, output, remaining)}"
        raise PipelineError(error.what, error.value, where=error.where, hint=hint) from None


def upload_commands(repository: str, output: Path, names: Sequence[str]) -> str:
    """Return the commands that upload revisions, a line each; files of an earlier upload are replaced."""
    commands = [f"hf repos create {repository} --exist-ok"]
    for name in names:
        if name != MAIN:
            commands.append(f"hf repos branch create {repository} {name} --exist-ok")
        commands.append(f"hf upload {repository} {output / name} . --revision {name} --delete '*'")
    return "\n".join(commands)


def kept_models(model: Path) -> dict[int, Path]:
    """Return step -> folder, ascending, for a model and the models kept during its training that have a state."""
    folders = [*itertools.takewhile(model.__ne__, sorted(model.parent.glob("phase*"))), model]
    states = [path for folder in folders for path in (folder / STATE, *folder.glob(f"steps/*/{STATE}"))]
    steps = {read_json(path, {"step": int})["step"]: path.parent.parent for path in states if path.exists()}
    return {step: steps[step] for step in sorted(steps)}


def phase_results(model: Path) -> dict[str, dict[str, Any]]:
    """Return phase -> results of the phases of this study that trained ``model``; {} if none did."""
    phases = sorted(path.resolve() for path in PRETRAINED.glob("phase*"))
    names = [path.name for path in phases if path <= model.resolve() and model.resolve() in phases]
    return {name: read_json(PRETRAIN_RESULTS / f"{name}.json", {"cost": dict, "ledger": dict}) for name in names}


def babylm_names(steps: Sequence[int], results: Mapping[str, Mapping[str, Any]]) -> dict[int, str]:
    """Return step -> ``chck_1M``, ``chck_2M``, ... for the steps after which about so many words had been read.

    Words are estimated from the tokens of each phase and the words per token of the corpus.
    """
    ends, words = [0], [0.0]
    parts = read_json(CORPUS, {"parts": dict})["parts"].values()
    words_per_token = sum(part["words"] for part in parts) / sum(
        part[split]["tokens"] for part in parts for split in SPLITS
    )
    for phase in results.values():
        num_special = phase["cost"]["sequences"] * (2 if phase["pairs"] == "none" else 3)
        ends.append(phase["steps_before"] + phase["steps"])
        words.append(words[-1] + (phase["cost"]["tokens"] - num_special) * words_per_token)
    names, missing = {}, {}
    for milestone in MILESTONES:
        name = f"chck_{milestone // 10**6}M"
        distances = {abs(np.interp(step, ends, words) / milestone - 1): step for step in steps}
        if distances and min(distances) <= MAX_OFF_MILESTONE:
            names[distances[min(distances)]] = name
        elif milestone <= words[-1]:
            missing[name] = round(np.interp(milestone, words, ends))
    advice = f"pretrain.keep_checkpoint_steps: {[*missing.values()]} would keep them"
    if not names:
        raise PipelineError(
            "no model near a number of words at which BabyLM evaluates", f"{words[-1] / 1e6:.2f} million words in all",
            where="--babylm", hint=advice if missing else "leave it out, or train this study on more words",
        )  # fmt: skip
    if missing:
        print(f"no model near {', '.join(missing)}: {advice}")
    return names


def data_order(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the order of the training examples follows from; docs/own-corpus.md rebuilds it."""
    examples = read_json(CORPUS, {"examples": dict})["examples"]
    phases = {
        name: {
            "first_step": phase["steps_before"],
            "last_step": phase["steps_before"] + phase["steps"],
            "train_batch_size": phase["batch"],
            "num_examples": examples[name]["train"]["examples"],
            **{key: phase["ledger"]["identity"][key] for key in ("seed", "data")},
        }
        for name, phase in results.items()
    }
    return {"phases": phases, "rebuild": "docs/own-corpus.md, section The order of the data"}


@contextmanager
def hub_errors(repository: str) -> Iterator[Any]:
    """Context manager that yields the hub's API, and raises its refusals and the network's as ``PipelineError``."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    clean_warnings()
    try:
        yield HfApi()
    except (HTTPError, OSError, ValueError) as error:
        raise PipelineError(
            "the hub takes no upload", repository, where=" ".join(without_token(error).split()),
            hint="`hf auth login` with a token that may write there, or set HF_TOKEN; without --push the folders are "
            "written, to be uploaded later",
        ) from None  # fmt: skip


def export_model(output: Path, model: Path, pooling: str, normalise: bool) -> None:
    """Write a copy of a model's folder that sentence-transformers loads too, with a card that says how."""
    with atomic_directory(output) as folder:
        write_sentence_transformers(model, folder, pooling, normalise)


def write_sentence_transformers(model: Path, folder: Path, pooling: str, normalise: bool) -> None:
    """Copy a model into ``folder``, and add the files that sentence-transformers reads."""
    probed = ProbedModel.open(model)
    config = probed.config
    if "encoder" not in config.names.classes:
        raise PipelineError(
            "transformers has no such architecture", config.names.model_type, where=model,
            hint="`python -m pipeline_src fill-mask`, `attention` and `inspect` take it",
        )  # fmt: skip
    folder.mkdir(exist_ok=True)
    for file in model.iterdir():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    state_inputs(folder, config.longest_input, config.type_vocab_size)
    steps = ["Transformer", "Pooling", *(["Normalize"] if normalise else [])]
    paths = ["", *(f"{number}_{step}" for number, step in enumerate(steps[1:], 1))]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{step}"}
        for number, (step, path) in enumerate(zip(steps, paths, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    max_length = read_json(model / "config.json").get(MAX_LENGTH, config.longest_input)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
    for path in paths[1:]:
        (folder / path).mkdir()
    modes = {f"pooling_mode_{mode}": name == pooling for name, mode in MODES.items()}
    write_json(folder / paths[1] / "config.json", {"word_embedding_dimension": config.hidden_size, **modes})
    card = folder / CARD
    if card.exists():
        text = card.read_text(encoding="utf-8")
    else:
        count = sum(parameter.numel() for parameter in probed.encoder.parameters())
        text = imported_card(config, count, config.names.classes["encoder"])
    card.write_text(sentence_card(text, pooling, normalise), encoding="utf-8")


WRITERS: dict[str, Callable[..., None]] = {
    "sentence-transformers": export_model,
    "hub": export_revisions,
    "parquet": export_examples,
}
