"""Masks are filled with the likeliest tokens, as transformers fills them; what cannot be is one clear error."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.common.errors import PipelineError
from pipeline_src.models.bert import BertForPretraining
from pipeline_src.tools import fill_mask as tool
from pipeline_src.tools.open_model import open_model


def opened(folder):
    return open_model(folder, BertForPretraining, tool.USED, "no head")


def fill(folder, text, top):
    ((same, filled),) = tool.fill_mask(opened(folder), [text], top)
    assert same == text
    return filled


def test_candidates_are_those_of_transformers(folder):
    transformers = pytest.importorskip("transformers")
    text = "The [MASK] sat on [MASK]s."
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        scores = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()(**inputs).logits[0]
    places = inputs["input_ids"][0] == tokenizer.mask_token_id
    expected = scores[places, : len(tokenizer)].softmax(-1).sort(descending=True)
    found = fill(folder, text, 100)
    assert len(found) == 2
    for candidates, ids, values in zip(found, expected.indices, expected.values, strict=True):
        assert [token for token, _ in candidates] == tokenizer.convert_ids_to_tokens(ids.tolist())
        assert [p for _, p in candidates] == pytest.approx(values.tolist(), rel=1e-4, abs=1e-6)
        assert sum(p for _, p in candidates) == pytest.approx(1, abs=1e-5)  # spare entries have no share


def test_a_table_is_printed(folder, call, capsys):
    call(tool, "the [MASK] sat on the [MASK]", "--model", folder, "--top", 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the [MASK] sat on the [MASK]"
    assert lines[2].split() == ["[MASK]", "1", "of", "2", "probability"] and lines[7].split()[1] == "2"
    assert len(lines) == 11 and all(line.endswith(" %") for line in (*lines[3:6], *lines[8:]))


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("the cat", (), r"no \[MASK\] in the text"),
        ("the [mask]", (), r"no \[MASK\] in the text"),
        ("the [MASK] " + "cat " * 9, (), "too long: 11 tokens, of which the model takes 10"),
        ("the [MASK]", ("--top", 0), "no candidates asked for"),
        ("the [MASK]", ("--model", "nowhere"), "no model here: nowhere"),
    ],
)
def test_what_cannot_be_filled_is_one_clear_error(folder, call, text, more, said):
    with pytest.raises(PipelineError, match=said):
        call(tool, text, "--model", folder, *more)


def test_a_file_gives_the_same_as_its_lines_one_by_one(folder, call, capsys, tmp_path):
    texts = ["the [MASK]", "[MASK] sat on [MASK]s [MASK].", "[MASK] " + "x " * 8, "É[MASK]"]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    call(tool, "--file", tmp_path / "texts.txt", "--model", folder, "--top", 3, "--output", tmp_path / "filled.jsonl")
    lines = (tmp_path / "filled.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["text"] for line in lines.splitlines()] == texts
    for text, line in zip(texts, lines.splitlines(), strict=True):
        filled = [[(each["token"], each["probability"]) for each in mask] for mask in json.loads(line)["masks"]]
        for found, expected in zip(filled, fill(folder, text, 3), strict=True):
            assert [token for token, _ in found] == [token for token, _ in expected]
            assert [p for _, p in found] == pytest.approx([p for _, p in expected], rel=1e-4)
    call(tool, "--file", tmp_path / "texts.txt", "--model", folder, "--top", 3)
    assert capsys.readouterr().out == lines


def test_a_line_that_cannot_be_filled_is_named_and_leaves_no_file(folder, call, tmp_path):
    (tmp_path / "texts.txt").write_text("the [MASK]\nthe cat\n", encoding="utf-8")
    with pytest.raises(PipelineError, match=r"no \[MASK\] in the text: 'the cat'\n  where:  .*texts.txt 2"):
        call(tool, "--file", tmp_path / "texts.txt", "--model", folder, "--output", tmp_path / "filled.jsonl")
    assert not (tmp_path / "filled.jsonl").exists()
    with pytest.raises(PipelineError, match="unknown kind of output"):
        call(tool, "the [MASK]", "--model", folder, "--output", tmp_path / "filled.npy")


def test_as_many_tokens_as_the_model_takes(folder):
    assert len(fill(folder, "[MASK] " + "cat " * 9, 1)) == 1


def test_control_tokens_in_a_text_are_text(folder):
    one, two = (fill(folder, text, 5) for text in ("[MASK] [SEP]", "[MASK] x"))
    assert one != two  # [SEP] became three unknown pieces, no end of the text


def drop(folder, start):
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if not n.startswith(start)}, folder / "model.safetensors")


def test_a_model_without_the_head_is_one_clear_error(folder, call):
    drop(folder, "cls.predictions")
    with pytest.raises(PipelineError, match="does not predict masked words"):
        call(tool, "the [MASK]", "--model", folder)


def test_neither_pooler_nor_next_sentences_are_needed(folder):
    expected = fill(folder, "the [MASK]", 5)
    drop(folder, ("bert.pooler", "cls.seq_relationship"))
    assert fill(folder, "the [MASK]", 5) == expected


def test_a_tokenizer_of_another_model_is_refused(folder):
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | {"vocab_size": 5}))
    with pytest.raises(PipelineError, match="the tokenizer has more entries than the model: .*13, of 5 ids"):
        opened(folder)
