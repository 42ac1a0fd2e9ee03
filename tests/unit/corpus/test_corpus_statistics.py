"""What the report says of the corpus: counted from what the stages left, not from what they said."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from pipeline_src.common.files import write_json
from pipeline_src.common.fingerprint import imported_files
from pipeline_src.config.data import ExamplesParams, Lengths, VocabularyParams
from pipeline_src.corpus import corpus_statistics as module
from pipeline_src.corpus.corpus_statistics import MOST, corpus_statistics, describe, sample_passages
from pipeline_src.corpus.documents import Document, in_validation_split, write_manifest, write_shard
from pipeline_src.examples import build_examples
from pipeline_src.examples import tokenize_corpus as tokens
from pipeline_src.examples.token_store import SAMPLE_INDEX
from pipeline_src.stages import STAGES
from pipeline_src.tokenizer import train_tokenizer as train
from tests.sources import corpus_of

CORPUS = corpus_of(validation=0.2)
WORDS = "river town road bridge tower field forest valley harbour market garden island castle".split()


def sentence(seed: int) -> str:
    """Fifteen words of one order for each seed."""
    picked = np.random.default_rng(seed).choice(WORDS, 15)
    return " ".join(picked).capitalize() + "."


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The corpus stages run on two small parts, and tasks beside them."""
    monkeypatch.chdir(tmp_path)
    for part, first in (("wikipedia", 0), ("books", 1000)):
        folder = tmp_path / "data/text" / part / "clean-text"
        folder.mkdir(parents=True)
        documents = [
            Document(f"{part}:{n}", "", "\n".join(sentence(first + 10 * n + i) for i in range(6))) for n in range(30)
        ]
        more = {"unknown_templates": [["odd", 3], ["a", 1]]} if part != "books" else {}
        shards = [write_shard(folder / "x.jsonl", documents)]
        write_manifest(folder, shards, {"redirect": 2}, dropped_lines={"list": 7}, **more)
    vocabulary = VocabularyParams(vocab_size=100, alphabet=30)
    train.run(seed=1, corpus=CORPUS, vocabulary=vocabulary)
    tokens.run(seed=1, corpus=CORPUS)
    build_examples.run(seed=1, examples=ExamplesParams(max_seq_length=Lengths(phase1=64, phase2=128), dupe_factor=2))
    seen = next(n for n in range(30) if not in_validation_split(f"wikipedia:{n}", 1, CORPUS.validation))
    passages = [
        sentence(10 * seen + 2),
        "A passage of which no word stands in the corpus, nor will it ever do so at all.",
    ]
    question = {"question": "Where?", "answers": [{"text": "A", "answer_start": 0}]}
    for name in ("train", "dev"):
        paragraphs = [
            {"context": passage, "qas": [{"id": str(number), **question}]}
            for number, passage in enumerate(passages * 2)
        ]
        write_json(f"data/tasks/squad1/{name}-v1.1.json", {"data": [{"title": "t", "paragraphs": paragraphs}]})
    folder = tmp_path / "data/tasks/qnli"
    folder.mkdir()
    for name in ("train", "dev"):
        lines = ["index\tquestion\tsentence\tlabel", f"0\tWhere?\t{sentence(10 * seen)}\tentailment"]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_every_stage_is_counted(study):
    found = corpus_statistics(CORPUS.sources, ("squad1", "qnli", "cola"))
    part = found["parts"]["wikipedia"]
    assert part["documents"] == part["train"]["documents"] + part["validation"]["documents"] == 30
    assert (part["dropped"], part["dropped_inside"]) == ({"redirect": 2}, {"list": 7})
    assert found["unknown_templates"] == [["odd", 3], ["a", 1]]
    assert part["train"]["sentences"] == 6 * part["train"]["documents"]
    assert found["vocabulary"]["entries"] > 90
    short = found["examples"]["phase1"]
    assert short["pairs"] == "nsp" and short["length"] == 64
    assert short["train"]["examples"] == len(np.load("data/examples/phase1/train.npy"))
    assert 0.3 < short["train"]["random_next"] < 0.8 and 0.3 < short["train"]["fill"] <= 1


def test_shared_passages_are_found(study):
    overlap = corpus_statistics(CORPUS.sources, ("squad1", "qnli", "cola"))["overlap"]
    train_text = {"squad1/train-v1.1.json", "squad1/dev-v1.1.json", "qnli/train.tsv", "qnli/dev.tsv"}
    assert set(overlap) == {"validation documents"} | train_text
    assert overlap["validation documents"]["found"] == 0  # no sentence stands in two documents
    assert (overlap["squad1/dev-v1.1.json"]["texts"], overlap["squad1/dev-v1.1.json"]["found"]) == (2, 1)
    assert overlap["qnli/dev.tsv"]["share"] == 1.0


def test_a_study_without_such_tasks_has_statistics_too(study):
    assert list(corpus_statistics(CORPUS.sources, ("cola",))["overlap"]) == ["validation documents"]


def test_a_sample_index_is_described_by_its_rows():
    rows = np.zeros(4, SAMPLE_INDEX)
    rows["a_length"], rows["b_length"], rows["is_random"] = [61, 20, 5, 1], [64, 9, 5, 1], [1, 0, 0, 0]
    found = describe(rows, 128, 3)
    assert (found["examples"], found["tokens"], found["random_next"]) == (4, 128 + 32 + 13 + 5, 0.25)
    assert found["fill"] == round(178 / 512, 4)
    classes = dict(zip(found["lengths"]["up_to"], found["lengths"]["examples"], strict=True))
    assert sum(classes.values()) == 4 and classes[8] == classes[16] == classes[40] == classes[128] == 1


def ancestors(stage: str, order: dict[str, tuple[str, ...]]) -> set[str]:
    """A stage and all whose outputs it reads, however far back."""
    return {stage}.union(*(ancestors(earlier, order) for earlier in order[stage]))


def _folder(entry: str | dict) -> str:
    """Path of a dependency or output, up to what a stage's matrix runs over."""
    path = next(iter(entry)) if isinstance(entry, dict) else entry
    return path.replace("${finetune.model}", "models/pretrained/phase2").split("/${item")[0]


@pytest.fixture(scope="module")
def stages(root):
    """What dvc.yaml declares, with the stages that each one rests on."""
    declared = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    del declared["code"]
    paths = {
        name: [[_folder(entry) for entry in stage.get(kind, [])] for kind in ("deps", "outs")]
        for name, stage in declared.items()
    }
    order = {
        name: tuple(
            maker
            for maker, (_, outs) in paths.items()
            if any(f"{dep}/".startswith(f"{out}/") or f"{out}/".startswith(f"{dep}/") for dep in deps for out in outs)
        )
        for name, (deps, _) in paths.items()
    }
    return {name: (stage, [declared[each] for each in ancestors(name, order)]) for name, stage in declared.items()}


def covers(stage: dict, file: str) -> bool:
    """Whether a file is among the code of a stage of dvc.yaml."""
    return file in imported_files(STAGES[stage["cmd"].split(" pipeline_src ")[1].split()[0]].module)


def test_a_changed_metric_rescans_no_text(stages):
    for file in ("pipeline_src/tasks/metrics.py", "pipeline_src/evaluation/scores.py"):
        assert covers(stages["evaluate"][0], file)
        rereads_tasks = stages["download_tasks"][0]  # and writes the same bytes
        assert not any(covers(stage, file) for stage in stages["corpus_statistics"][1] if stage is not rereads_tasks)


def test_another_masking_rate_rescans_no_text(stages):
    assert any("mask_prob" in stage["params"] for stage in stages["evaluate"][1])
    for key in ("mask_prob", "pretrain", "model", "finetune"):
        assert not any(key in stage.get("params", []) for stage in stages["corpus_statistics"][1])


VOCABULARY_WORDS = "river town road bridge tower field forest valley harbour market garden island castle".split()
TEXTS: dict[str, str] = {}


@pytest.fixture
def folders(tmp_path) -> dict[str, Path]:
    """A corpus of two sources."""
    draw = np.random.default_rng(0)
    folders = {name: tmp_path / name for name in ("books", "wikipedia")}
    for folder in folders.values():
        folder.mkdir(parents=True)
        documents = []
        for number in range(20):
            lines = [" ".join(draw.choice(VOCABULARY_WORDS, 30)).capitalize() + "." for _ in range(8)]
            documents.append(Document(f"{folder.name}:{number}", f"Title {number}", "\n".join(lines)))
            TEXTS[documents[-1].id] = documents[-1].text.replace("\n", " ")
        write_manifest(folder, [write_shard(folder / "x.jsonl", documents)], {})
    return folders


def test_passages_are_whole_lines_of_the_corpus_from_every_source(folders):
    passages = sample_passages(folders, 1)
    assert len(passages) == 5 and {passage["part"] for passage in passages} == {"books", "wikipedia"}
    for passage in passages:
        assert passage["text"].removesuffix(" …") in TEXTS[passage["id"]]
        assert len(passage["text"].removesuffix(" …").split()) == passage["words"] <= MOST
    assert sample_passages(folders, 1) == passages
    assert sample_passages(folders, 2) != passages


def test_a_long_line_is_cut_and_a_short_document_is_shown_whole():
    long = module._passage(Document("a", "", "\n".join(["word " * 300] * 3)))
    assert long["words"] == MOST and long["text"].endswith(" …")
    assert module._passage(Document("b", "", "Two lines.\nOf text.")) == {"text": "Two lines. Of text.", "words": 4}
