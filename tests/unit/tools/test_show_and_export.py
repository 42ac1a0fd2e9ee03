"""Examples as text for a person, and as files for other trainers."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from pipeline_src.base.counter_rng import derive_seed, phase_key
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json, write_json
from pipeline_src.examples.pairs import PairRules, document_pairs
from pipeline_src.examples.token_store import TokenStore
from pipeline_src.model.bert import BertConfig
from pipeline_src.pretrain.data import DataShard, open_examples, shown_examples
from pipeline_src.pretrain.objective import load_objective
from pipeline_src.pretrain.validation import ValidationSet
from pipeline_src.study.preset import preset_text
from pipeline_src.study.pretrain import Masking
from pipeline_src.study.study import load_study
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tokenizer.wordpiece import SPECIAL_TOKENS, save_tokenizer
from pipeline_src.tools import export
from pipeline_src.tools import show_examples as show
from pipeline_src.training.distributed import single_process

WORDS = ["the", "river", "ran", "##s", "##ning", "through", "town", "old", "."]


@pytest.fixture
def study(tmp_path, monkeypatch, make_store, root):
    """A study whose stages up to ``examples`` have run."""
    (tmp_path / "params.yaml").write_text(preset_text("test", root / "workflow/presets"))
    monkeypatch.chdir(tmp_path)
    for folder in ("data/tokens", "data/examples/phase1", "data/vocabulary"):
        (tmp_path / folder).mkdir(parents=True)
    save_tokenizer(tmp_path / "data/vocabulary", [*SPECIAL_TOKENS, *WORDS], lowercase=True)
    rng = np.random.default_rng(0)
    documents = [[rng.integers(5, 14, rng.integers(3, 12)).tolist() for _ in range(9)] for _ in range(60)]
    store = make_store(tmp_path / "data/tokens", documents)
    rules = PairRules(64, 0.1, 0.5, "nsp", 3)
    np.save(tmp_path / "data/examples/phase1/train.npy", document_pairs(store, 0, 60, rules, [1]))
    write_json(tmp_path / "data/examples/manifest.json", {"pairs": "nsp", "phase1": {"length": 64}})
    return tmp_path


def edit_params(changes: dict[str, str]) -> None:
    path = Path("params.yaml")
    text = path.read_text()
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)


def opened(objective="mlm"):
    return open_examples("phase1", "train", load_tokenizer("data/vocabulary"), 0.15, Masking(), 1, objective)


@pytest.fixture
def left_to_right(study):
    """The same study, whose model is to predict every next word."""
    edit_params({"objective: mlm": "objective: clm", "pair_objective: nsp": "pair_objective: none"})
    store = TokenStore("data/tokens", "train")
    rules = PairRules(64, 0.1, 0.5, "none", 2)
    np.save(study / "data/examples/phase1/train.npy", document_pairs(store, 0, len(store), rules, [1]))
    write_json("data/examples/manifest.json", {"pairs": "none", "phase1": {"length": 64}})
    return study


def test_show_examples_prints_text_with_masks(study, call, capsys):
    call(show, "--example", "3")
    title, first, second = capsys.readouterr().out.split("\n\n")[1].splitlines()
    batch = opened().batch(np.asarray([3]))
    assert title.startswith("example 3 (phase1, train):") and f"{len(batch.predicted)} predicted" in title
    assert [f"  A: {first[5:]}", f"  B: {second[5:]}"] == [first, second]
    assert show.as_text(batch, load_tokenizer("data/vocabulary"), 0) == [first[5:], second[5:]]


def test_as_text_joins_subwords_and_marks_predictions(study):
    batch = opened().batch(np.asarray([0]))
    words = {word: 5 + index for index, word in enumerate(WORDS)}
    ids = [2, words["the"], 4, words["ran"], words["##ning"], words["old"], 3, words["river"], words["##s"], 3]
    made = batch.__class__(
        ids=np.asarray(ids),
        segments=np.asarray([0] * 7 + [1] * 3),
        cu_seqlens=np.asarray([0, 10]),
        predicted=np.asarray([2, 5, 7]),
        labels=np.asarray([words["river"], words["town"], words["river"]]),
        pair_label=np.asarray([0]),
        examples=np.asarray([0]),
    )
    lines = show.as_text(made, load_tokenizer("data/vocabulary"), 0)
    assert lines == ["the {[MASK] river} ranning {old town}", "{river=}s"]
    assert "\033[1;31m" in show.as_text(made, load_tokenizer("data/vocabulary"), 0, colour=True)[0]


def test_show_examples_clm_prints_text_without_masks(left_to_right, call, capsys):
    """Every word is predicted and none is masked: the text stands there as it is."""
    call(show, "--example", "3")
    printed = capsys.readouterr().out
    tokenizer, ids = load_tokenizer("data/vocabulary"), opened("clm").batch(np.asarray([3])).ids
    words = "".join(f" {tokenizer.id_to_token(number)}" for number in ids[1:-1].tolist()).replace(" ##", "")
    assert printed.startswith(show.NEXT_KEY) and f"{len(ids)} tokens, {len(ids) - 1} predicted\n" in printed
    assert printed.endswith(f"  A: {words.strip()}\n")


def test_shown_examples_clm_predicts_every_next_token(left_to_right):
    tokenizer, examples = load_tokenizer("data/vocabulary"), opened("clm")
    for example in shown_examples(examples, tokenizer, seed=1):
        (segment,) = example["segments"]
        ids = examples.batch(np.asarray([example["example"]])).ids[1:-1]
        spelt = [tokenizer.id_to_token(number).removeprefix("##") for number in ids.tolist()]
        assert example["pair"] is None and [piece["text"] for piece in segment] == spelt
        assert {piece["fate"] for piece in segment} == {"next"}


def test_show_examples_prints_pair_label(study):
    examples, tokenizer = opened(), load_tokenizer("data/vocabulary")
    labels = {example["example"]: example["pair"] for example in shown_examples(examples, tokenizer, seed=1)}
    for number, pair in labels.items():
        random = examples.sample_index[number]["is_random"]
        assert pair == ("B is a random text" if random else "B follows A")


def test_open_study_examples_roberta_random_tokens_are_never_padding(validated):
    edit_params({"mask_ratio: 0.8": "mask_ratio: 0.0", "random_ratio: 0.1": "random_ratio: 0.9"})
    edit_params({"architecture: bert": "architecture: roberta"})
    study, tokenizer = load_study(), load_tokenizer("data/vocabulary")
    for split in ("train", "validation"):
        examples = show.open_study_examples(study, "phase1", split, tokenizer)
        batch = examples.batch(np.arange(len(examples)))
        assert len(batch.predicted) > 500 and not np.isin(batch.ids[batch.predicted], (0, 1, 2, 3)).any()


def test_show_examples_unknown_number_is_rejected(study, call):
    with pytest.raises(PipelineError, match="no such example"):
        call(show, "--example", "100000")


def test_documented_data_order_gives_the_examples_of_a_step(study, root):
    """Over the end of an epoch, and in the second phase, whose steps go on."""
    page = (root / "docs/own-corpus.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    shutil.copytree("data/examples/phase1", "data/examples/phase2")
    examples, size, spans = opened(), 16, {"phase1": (0, 5), "phase2": (5, 50)}
    write_json("results/corpus.json", {"examples": {name: {"train": {"examples": len(examples)}} for name in spans}})
    for name, (first, last) in spans.items():
        phase = {"steps_before": first, "batch": size, "ledger": {"identity": {"seed": 1}}}
        write_json(f"results/pretrain/{name}.json", phase)
        key = derive_seed(1, "order", phase_key(name))
        for number, batch in enumerate(examples.batches(size, key, 0, last - first, DataShard())):
            values: dict = {}
            exec(program.replace('step, name = 20, "phase1"', f'step, name = {first + number}, "{name}"'), values)
            assert values["examples"].tolist() == batch[0].examples.tolist()
    assert 45 * size > len(examples)


@pytest.mark.parametrize("per_file", [1 << 16, 50])
def test_export_parquet_has_the_examples_that_training_reads(study, per_file):
    export.export_examples(study / "pq", "phase1", "train", per_file)
    examples = opened()
    batch = examples.batch(np.arange(len(examples)))
    files = sorted((study / "pq").iterdir())
    assert len(files) == -(-len(examples) // per_file)
    table = pd.concat(map(pd.read_parquet, files))
    assert np.array_equal(np.concatenate(table["input_ids"].tolist()), batch.ids)
    assert np.array_equal(np.concatenate(table["token_type_ids"].tolist()), batch.segments)
    assert table["input_ids"].map(len).tolist() == np.diff(batch.cu_seqlens).tolist()
    assert table["next_sentence_label"].tolist() == batch.pair_label.tolist()
    labels = np.concatenate(table["labels"].tolist())
    assert np.flatnonzero(labels != -100).tolist() == batch.predicted.tolist()
    assert np.array_equal(labels[batch.predicted], batch.labels)


@pytest.fixture
def validated(study, make_store):
    """The same study with other masks than validation has, the documents of its training text as validation text."""
    train, validation = (study / f"data/examples/phase1/{split}.npy" for split in ("train", "validation"))
    shutil.copyfile(train, validation)
    for path in (study / "data/tokens").glob("train.*"):
        shutil.copyfile(path, path.with_name(path.name.replace("train", "validation")))
    manifest = read_json("data/tokens/manifest.json")
    manifest["splits"]["validation"] = manifest["splits"]["train"]
    write_json("data/tokens/manifest.json", manifest)
    edit_params({"mask_prob: 0.15": "mask_prob: 0.4", "dynamic: false": "dynamic: true"})
    return study


def test_export_parquet_validation_examples_give_the_validation_loss(validated, call):
    assert load_study().mask_prob == 0.4 and load_study().pretrain.masking.dynamic
    objective = load_objective("mlm")(BertConfig(5 + len(WORDS), 16, 1, 2, 32, 64), "nsp").eval()
    objective.init_weights(torch.Generator().manual_seed(0))
    tokenizer, store = load_tokenizer("data/vocabulary"), TokenStore("data/tokens", "train")
    expected = ValidationSet("phase1", tokenizer, "mlm", "bert", store, single_process()).measure(objective)

    call(export, "pq", "--format", "parquet", "--split", "validation")
    table = pd.read_parquet("pq/examples-00000.parquet")
    losses = []
    for row in table.itertuples():
        ids, segments, labels = (torch.tensor(values) for values in (row.input_ids, row.token_type_ids, row.labels))
        (predicted,) = torch.where(labels != -100)
        starts = torch.tensor([0, len(ids)])
        with torch.no_grad():
            logits, _ = objective.model(ids.long(), segments.long(), starts, predicted)
        losses.append(cross_entropy(logits, labels[predicted].long(), reduction="none"))
    assert expected["predictions"] == sum(map(len, losses))
    assert torch.cat(losses).mean().item() == pytest.approx(expected["mlm_loss"], rel=1e-6)


def test_export_parquet_causal_labels_equal_tokens(left_to_right, call):
    call(export, "pq", "--format", "parquet")
    row = pd.read_parquet("pq/examples-00000.parquet").iloc[3]
    assert row["labels"][0] == -100 and row["labels"][1:].tolist() == row["input_ids"][1:].tolist()
    assert "next_sentence_label" not in row


def test_export_parquet_bad_option_is_rejected_and_writes_nothing(study, call):
    with pytest.raises(PipelineError, match="already exists"):
        call(export, "data", "--format", "parquet")
    with pytest.raises(
        PipelineError, match="option does not apply to this format: --pooling\n  where:  --format parquet"
    ):
        call(export, "new", "--format", "parquet", "--pooling", "max")
    edit_params({"dynamic: false": "dynamic: true"})
    with pytest.raises(PipelineError, match="dynamic masking"):
        call(export, "new", "--format", "parquet")
    assert not (study / "new").exists()
