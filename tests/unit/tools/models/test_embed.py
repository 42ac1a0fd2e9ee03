"""Vectors are transformers' hidden states pooled, one a text, in order, however they are batched."""

import io
import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.bert import Bert
from pipeline_src.tools import embed as tool
from pipeline_src.tools.open_model import open_model
from pipeline_src.tools.texts import batches, in_order

TEXTS = ["the cat sat on the mat.", "", "mats", "the mat", "É x", "x " * 8]
POOLED = {
    "mean": lambda hidden, keep: (hidden * keep).sum(1) / keep.sum(1),
    "max": lambda hidden, keep: hidden.masked_fill(keep == 0, -1e9).max(1).values,
    "cls": lambda hidden, keep: hidden[:, 0],
}


@pytest.fixture
def opened(folder):
    return open_model(folder, Bert, tool.ENCODER, "no encoder")


def vectors(opened, texts, *args) -> np.ndarray:
    return np.stack([vector for _, vector in tool.embed(opened, texts, *args)])


@pytest.mark.parametrize("pooling", list(POOLED))
def test_vectors_are_those_of_transformers(folder, opened, pooling):
    transformers = pytest.importorskip("transformers")
    batch = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = transformers.AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
    expected = POOLED[pooling](hidden, batch["attention_mask"][:, :, None])
    np.testing.assert_allclose(vectors(opened, TEXTS, pooling), expected.numpy(), rtol=1e-5, atol=1e-5)


def test_order_and_values_do_not_depend_on_the_batches(opened):
    texts = TEXTS * 3
    expected = vectors(opened, texts)

    def encode(some):
        return [found.ids for found in opened.tokenizer.encode_batch(some, add_special_tokens=False)]

    for tokens, at_once in ((1, 4), (25, 7), (40, 100)):
        found = list(in_order(texts, encode, lambda ids: tool.pool(opened, ids), tokens, at_once))
        assert [text for text, _ in found] == texts
        np.testing.assert_allclose(np.stack([vector for _, vector in found]), expected, rtol=1e-5, atol=1e-5)


def test_batches_stay_within_the_budget_and_hold_every_text_once():
    lengths = [3, 12, 2, 40, 7, 7, 12, 2]
    made = list(batches(lengths, 30))
    assert sorted(number for batch in made for number in batch) == list(range(8))
    assert all(len(batch) == 1 or max(lengths[n] for n in batch) * len(batch) <= 30 for batch in made)
    assert len(made) == 4


def test_normalised_vectors_have_length_one(opened):
    np.testing.assert_allclose(np.linalg.norm(vectors(opened, TEXTS, "mean", True), axis=1), 1, rtol=1e-6)


def test_longer_texts_are_cut_and_counted(opened, caplog):
    whole = vectors(opened, ["cat " * 10])
    caplog.set_level("WARNING", "pipeline_src")
    cut = vectors(opened, ["cat " * 30, "the", "cat " * 11])
    assert np.allclose(cut[0], whole[0], atol=1e-5) and np.allclose(cut[2], whole[0], atol=1e-5)
    assert "2 texts were cut to the 10 tokens" in caplog.text


def test_a_length_that_the_tokenizer_brings_along_is_not_obeyed(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=12)
    expected = vectors(open_model(folder, Bert, tool.ENCODER, ""), TEXTS)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert np.array_equal(vectors(open_model(folder, Bert, tool.ENCODER, ""), TEXTS), expected)


def test_json_lines_hold_the_same_float32(folder, call, capsys, tmp_path):
    call(tool, *TEXTS, "--model", folder)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    call(tool, *TEXTS, "--model", folder, "--output", tmp_path / "v.npy")
    call(tool, *TEXTS, "--model", folder, "--output", tmp_path / "v.jsonl")
    saved = np.load(tmp_path / "v.npy")
    assert saved.dtype == np.float32 and saved.shape == (len(TEXTS), 16)
    assert [row["text"] for row in rows] == TEXTS
    assert np.array_equal(np.asarray([row["vector"] for row in rows], np.float32), saved)
    assert [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()] == rows


def test_a_file_and_standard_input_give_a_vector_a_line(folder, call, capsys, tmp_path, monkeypatch):
    data = "the cat\r\n\nÉ \u2028 x\n".encode()
    (tmp_path / "texts.txt").write_bytes(data)
    call(tool, "--file", tmp_path / "texts.txt", "--model", folder)
    from_file = capsys.readouterr().out
    assert [json.loads(line)["text"] for line in from_file.split("\n")[:-1]] == ["the cat", "", "É \u2028 x"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    call(tool, "--model", folder)
    assert capsys.readouterr().out == from_file
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    call(tool, "--model", folder, "--output", tmp_path / "none.npy")
    assert np.load(tmp_path / "none.npy").shape == (0, 16)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("x", "--output", "v.txt"), "unknown kind of output: v.txt"),
        (("x", "--file", "texts.txt"), "texts and --file"),
        (("--file", "nowhere.txt"), "texts cannot be read"),
        (("--file", "latin.txt"), "texts cannot be read"),
        (("--file", "."), "texts cannot be read"),
    ],
)
def test_mistakes_are_one_clear_error_and_leave_no_file(folder, call, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes("x\ncafé\n".encode("latin-1"))
    before = sorted(tmp_path.iterdir())
    given = given if "--output" in given else (*given, "--output", "v.npy")
    with pytest.raises(PipelineError, match=said):
        call(tool, *given, "--model", folder)
    assert sorted(tmp_path.iterdir()) == before
