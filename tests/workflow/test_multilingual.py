"""A study of three languages, from the preset: a real dump, a made one, and a script without spaces."""

from __future__ import annotations

import bz2
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from tests.studies import install_segmenter
from tests.workflow.on_slurm import change_params

if TYPE_CHECKING:
    from conftest import Project

ITALIAN = Path(__file__).resolve().parents[3] / "shared/data/wiki_xml/itwiki-small-dump.xml.gz"
HEAD = '<mediawiki xml:lang="ltg"><siteinfo><dbname>ltgwiki</dbname></siteinfo>\n'
LATIN, VAI = "aābcčdeēgģiījkļlmnņoprsštuūvzž", "".join(map(chr, range(0xA500, 0xA5A0)))
VAI_STOP = "\ua60e"
SMALL = {
    "corpus.sources.unspaced.segmenter": "in_twos:in_twos",
    "pretrain.masking.unit": "whole_word",
    "vocabulary.vocab_size": 2500,
    "examples.dupe_factor": 1,
    "word_vectors.epochs": 1,
    "model.num_hidden_layers": 1,
    "model.hidden_size": 64,
    "model.position_init": "random",
    "pretrain.steps": {"phase1": 20, "phase2": 20},
    "pretrain.eval_steps": 10,
    "pretrain.keep_checkpoint_steps": [],
    "pretrain.train_batch_size": 16,
    "pretrain.warmup_steps": 5,
    "tasks": ["word_swap"],
    "finetune.defaults.epochs": 1,
    "finetune.defaults.random_baseline": False,
    "interpretation.words": 600,
    "interpretation.sentences": 10,
}
SOURCES = ("italian", "latgalian", "unspaced")


def paragraphs(letters: str, space: str, stop: str, seed: int) -> str:
    """Sentences of made words, the frequent ones most often."""
    draw, known = np.random.default_rng(seed), np.random.default_rng(0)
    lexicon = ["".join(known.choice(list(letters), known.integers(2, 5))) for _ in range(400)]
    lines = []
    for _ in range(3):
        picked = [lexicon[int(400 * draw.random() ** 3)] for _ in range(70)]
        cut = [picked[start : start + 7] for start in range(0, 70, 7)]
        lines.append("".join(f"{space.join(words).capitalize()}{stop}" for words in cut).strip())
    return "\n\n".join(lines)


def write_own_texts(folder: Path) -> None:
    """Two dumps and a text, where the preset looks for them."""
    (folder / "wikipedia").mkdir(parents=True)
    shutil.copy(ITALIAN, folder / "wikipedia/itwiki.xml.bz2")  # what it is, its first bytes tell
    pages = [
        f"<page><title>P{n}</title><ns>0</ns><id>{n}</id><revision><id>9</id><text>{text}</text></revision></page>\n"
        for n, text in ((n, paragraphs(LATIN, " ", ". ", n)) for n in range(150))
    ]
    (folder / "wikipedia/ltgwiki.xml.bz2").write_bytes(bz2.compress(f"{HEAD}{''.join(pages)}</mediawiki>\n".encode()))
    (folder / "text").mkdir()
    rows = [json.dumps({"id": n, "text": paragraphs(VAI, "", VAI_STOP, n)}) for n in range(200)]
    (folder / "text/vai.jsonl").write_text("\n".join(rows) + "\n")


@pytest.mark.slow
def test_multilingual_preset_study_mixes_three_languages(fresh_clone: Callable[[str], Project], tmp_path: Path) -> None:
    if not ITALIAN.exists():
        pytest.skip("../shared with the Italian dump is not here")
    project = fresh_clone("multilingual")
    write_own_texts(project.path / "data/own")
    change_params(project, SMALL)
    output = project.dvc("repro", PYTHONPATH=install_segmenter(tmp_path / "packages"))
    assert "Traceback" not in output and "up to date" in project.dvc("status")

    def read(name: str) -> dict[str, Any]:
        return json.loads((project.path / name).read_text())

    corpus, tokens = read("results/corpus.json"), read("data/tokens/manifest.json")
    assert tuple(corpus["parts"]) == SOURCES and not corpus["dropped"]
    languages = [read(f"data/text/{name}/clean-text/manifest.json")["language"] for name in SOURCES]
    assert languages == ["it", "ltg", "und"]
    assert tokens["segmenters"] == ["in_twos:in_twos in_twos 1.0"]
    unspaced = tokens["parts"]["train"]["unspaced"]
    assert 25 < unspaced["sentences"] / unspaced["documents"] <= 30  # the stop of the script ends its sentences
    assert unspaced["tokens"] / unspaced["sentences"] < 21  # of 21 letters on average: pieces were learnt

    sizes = {name: tokens["parts"]["train"][name]["tokens"] ** 0.7 for name in SOURCES}
    for phase in ("phase1", "phase2"):
        mixed = corpus["examples"][phase]["sources"]
        for name in SOURCES:
            assert mixed[name]["examples"] / corpus["examples"][phase]["train"]["examples"] == pytest.approx(
                sizes[name] / sum(sizes.values()), abs=0.005
            )
        assert mixed["latgalian"]["passes"] > mixed["italian"]["passes"]
        curve = pd.read_csv(project.path / f"results/pretrain/{phase}.tsv", sep="\t")
        losses = curve[[f"validation_mlm_loss_{name}" for name in SOURCES]].dropna()
        assert len(losses) and (losses > 0).all(axis=None)
    assert corpus["vocabulary"]["entries"] == 2500 and corpus["vocabulary"]["coverage"] > 0.99
    report = (project.path / "results/report.md").read_text()
    assert "By source, phase2: MLM loss on italian" in report and "unspaced" in report
    assert "Training examples by source" in (project.path / "results/report.html").read_text()
