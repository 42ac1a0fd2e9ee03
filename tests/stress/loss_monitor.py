"""Seed faults in short trainings of the sample and see whether each is named: ``python -m tests.stress.loss_monitor``.

A fault is in the parameters or the tokens of the study. A training takes the first 200 of the sample's 2,000 steps: the
fault must be named by then, and nothing in a sound training.
Needs the sample's data: ``snakemake --cores 2 build_examples``.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from pipeline_src.common.files import read_json, write_json
from pipeline_src.common.paths import EXAMPLES, PRETRAIN_RESULTS, TOKENS, VOCABULARY
from pipeline_src.config.machine import Machine, PretrainingMachine
from pipeline_src.config.study import Study, load_study
from pipeline_src.examples.build_examples import run as build_examples
from pipeline_src.examples.token_store import SPLITS, TokenStore, TokenWriter
from pipeline_src.pretraining.loss_monitor import MAX_RATIOS, RECIPE, REFERENCE_RUNS, Run, check_loss
from pipeline_src.pretraining.phases import Phase
from pipeline_src.pretraining.pretrain import PhaseTraining
from pipeline_src.tokenizer.load import kind_of, load_tokenizer
from pipeline_src.training.distributed import init_distributed
from pipeline_src.training.stop import StopRequest

STEPS = 200  # a tenth of the sample's
DATA = (TOKENS, EXAMPLES, VOCABULARY)
SOUND_SEED = 3  # the reference runs have trainings with seeds 1 and 11
LINES = 60  # sentences of the text that repeats itself
KNOWN = 0.6  # share of the tokens that a far too small vocabulary has, the rest being [UNK]


def write_tokens(change: Callable[[TokenStore, str], tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    """Replace the tokens of the study in the working directory by ``change`` of each split."""
    manifest = read_json(TOKENS / "manifest.json", dict)
    vocab_size = load_tokenizer(VOCABULARY).get_vocab_size()
    for split in SPLITS:
        store = TokenStore(TOKENS, split)
        ids, sentences, documents = change(store, split)
        ids = np.array(ids)  # the file that it maps is written anew
        writer = TokenWriter(TOKENS, split, vocab_size)
        writer.add(ids, sentences, documents)
        manifest["splits"][split] = writer.close()
    write_json(TOKENS / "manifest.json", manifest)


def repeat_lines(seed: int) -> None:
    """Make the training text of a few lines, over and over, in documents of as many."""

    def change(store: TokenStore, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lengths, documents = np.diff(store.sentences), np.diff(store.documents)
        if split == "validation":
            return store.ids, lengths, documents
        first = int(np.random.default_rng(seed).integers(len(lengths) - LINES))
        lines = store.ids[store.sentences[first] : store.sentences[first + LINES]]
        times = len(store.ids) // len(lines)
        return np.tile(lines, times), np.tile(lengths[first : first + LINES], times), np.full(times, LINES)

    write_tokens(change)
    build_examples(seed=seed, examples=load_study().examples)


def lose_words(seed: int) -> None:
    """Replace all but the most frequent tokens by [UNK], as a vocabulary of another language would."""
    tokenizer = load_tokenizer(VOCABULARY)
    counts = TokenStore(TOKENS, "train").counts(tokenizer.get_vocab_size())
    order = np.argsort(-counts)
    lost = np.ones(len(counts), bool)
    lost[order[: int(np.searchsorted(np.cumsum(counts[order]), KNOWN * counts.sum()))]] = False
    unknown = np.int64(kind_of(tokenizer).id_of(tokenizer, kind_of(tokenizer).unk))
    mapped = np.where(lost, unknown, np.arange(len(counts)))
    write_tokens(lambda store, split: (mapped[store.ids], np.diff(store.sentences), np.diff(store.documents)))


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        cause: to be named; None for a sound training.
        pretrain, model, study: changes of sections of params.yaml.
        spoil: changes the study's tokens in the working directory, given a seed.
        pairs: another ``examples.pair_objective``.
    """

    cause: str | None
    pretrain: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=dict)
    spoil: Callable[[int], None] | None = None
    pairs: str | None = None


def rates(learning_rate: float, muon_learning_rate: float) -> dict[str, float]:
    return {"learning_rate": learning_rate, "muon_learning_rate": muon_learning_rate}


VISIBLE = {"mask_ratio": 0.0, "random_ratio": 0.0, "keep_ratio": 1.0}
FAULTS = {
    "repeated lines": Case("repeated text", spoil=repeat_lines),
    "a vocabulary that lacks words": Case("[UNK] in the text", spoil=lose_words),
    "predicted tokens visible": Case("masks that show the words", pretrain={"masking": VISIBLE}),
    "rates near zero": Case("learning rate near zero", pretrain=rates(1e-6, 1e-6)),
}
ADAMW = {"optimizer": "adamw", "learning_rate": 0.001, "muon_learning_rate": None}
SOUND = {
    "the sample": Case(None),
    "AdamW, random positions": Case(None, pretrain=ADAMW, model={"position_init": "random"}),
    "ModernBERT, 30 % masked": Case(
        None, model={"architecture": "modernbert", "position_init": "random"}, study={"mask_prob": 0.3}
    ),
    "ALBERT": Case(None, model={"architecture": "albert"}),
    "always [MASK]": Case(None, pretrain={"masking": {"mask_ratio": 1.0, "random_ratio": 0.0, "keep_ratio": 0.0}}),
    "rates a third": Case(None, pretrain=rates(0.0007, 0.0013)),
    "ELECTRA": Case(
        None,
        pretrain={"objective": "electra", "masking": {"mask_ratio": 0.85, "random_ratio": 0.0, "keep_ratio": 0.15}},
        model={"architecture": "electra"},
        pairs="none",
    ),
    "left to right": Case(None, pretrain={"objective": "clm"}, pairs="none"),
}


def train(case: Case, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """Train the first steps of the study in the working directory; return ``results/pretrain/phase1.json``."""
    study = load_study()
    if case.spoil is not None:
        case.spoil(seed)
    blocks, total = study.model_dump(), study.pretrain.steps.phase1 + study.pretrain.steps.phase2
    blocks["pretrain"] |= {"steps": {"phase1": steps, "phase2": total - steps}, "keep_checkpoint_steps": ()}
    for section in ("pretrain", "model"):
        blocks[section] |= getattr(case, section)
    if case.pairs is not None:
        blocks["examples"]["pair_objective"] = case.pairs
    study = Study.model_validate({**blocks, **case.study, "seed": seed})
    if case.pairs is not None:
        build_examples(seed=seed, examples=study.examples)
    machine = Machine(pretrain=PretrainingMachine(threads=1))
    phase = Phase("phase1", seed, study.mask_prob, study.model, study.pretrain, machine, study.objectives)
    torch.set_num_threads(1)
    with init_distributed() as distributed:
        PhaseTraining(phase, distributed, StopRequest()).run()
    return read_json(PRETRAIN_RESULTS / "phase1.json", dict)


def judge_training(name: str, case: Case, seed: int) -> bool:
    """Train a case in a copy of the study, print its line, and return whether it was judged rightly."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for path in DATA:
            shutil.copytree(here / path, path)
        shutil.copytree(here / "catalogue", "catalogue")
        shutil.copyfile(here / "params.yaml", "params.yaml")
        result = train(case, seed)["diagnosis"]
    right = result["cause"] == case.cause and (case.cause is not None or result["status"] != "behind")
    print(f"{'  ' if right else '! '}{name:32} seed {seed}: {result['sentence']}", flush=True)
    return right


def judge_recorded() -> tuple[int, int]:
    """Judge every reference run by all others; return how many were judged wrongly, and how many there are.

    A run with rows that are marked as faulty must be called behind at one of these, and nowhere else.
    """
    runs = pd.read_csv(REFERENCE_RUNS, sep="\t")
    wrong = 0
    for name, curve in runs.groupby("curve", sort=False):
        references = runs[runs["curve"] != name]
        called = {True: 0, False: 0}  # faulty or not -> rows
        for row in curve.to_dict("records"):
            settings = {column: row[column] for column in ("objective", *RECIPE, *MAX_RATIOS)}
            result = check_loss(Run(settings, row["tokens_m"] * 1e6, {"gap": row["gap"]}), references)
            faulty = isinstance(row["fault"], str)
            if result["status"] == "behind":
                print(f"{'  ' if faulty else '! '}{name}: {result['sentence']}")
                called[faulty] += 1
        wrong += bool(called[False]) or bool(called[True]) != bool(curve["fault"].notna().any())
    return wrong, runs["curve"].nunique()


def main(argv: list[str] | None = None) -> int:
    """Run all cases; the exit status is 1 if one was judged wrongly."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.loss_monitor", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each fault (2)")
    parser.add_argument("--only", choices=["faults", "sound", "recorded"], help="some of the cases")
    arguments = parser.parse_args(argv)
    seeds = range(1, arguments.seeds + 1)
    wrong = 0
    if arguments.only in (None, "recorded"):
        misjudged, curves = judge_recorded()
        print(f"recorded curves: {misjudged} of {curves} judged wrongly")
        wrong += misjudged
    if arguments.only in (None, "faults"):
        named = [judge_training(name, case, seed) for name, case in FAULTS.items() for seed in seeds]
        print(f"seeded faults: {sum(named)} of {len(named)} named within {STEPS} steps")
        wrong += named.count(False)
    if arguments.only in (None, "sound"):
        quiet = [judge_training(name, case, SOUND_SEED) for name, case in SOUND.items()]
        print(f"sound trainings: {quiet.count(False)} false alarms in {len(quiet)}")
        wrong += quiet.count(False)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
