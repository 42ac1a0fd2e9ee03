"""Tool ``fill-mask``: candidates are those of transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipeline_src.base.errors import PipelineError
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.tools import fill_mask as tool
from pipeline_src.tools.fill_mask import fill_mask


def fill(folder, text, top):
    return fill_mask(ProbedModel.open(folder), text, top)


def test_fill_mask_two_masks_gives_the_candidates_of_transformers(folder):
    transformers = pytest.importorskip("transformers")
    text = "The [MASK] sat on [MASK]s."
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        logits = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()(**inputs).logits[0]
    masked = inputs["input_ids"][0] == tokenizer.mask_token_id
    expected = logits[masked, : len(tokenizer)].softmax(-1).sort(descending=True)
    results = fill(folder, text, 100)
    assert len(results) == 2
    for candidates, ids, values in zip(results, expected.indices, expected.values, strict=True):
        assert [token for token, _ in candidates] == tokenizer.convert_ids_to_tokens(ids.tolist())
        assert [p for _, p in candidates] == pytest.approx(values.tolist(), rel=1e-4, abs=1e-6)
        # Spare entries have no share.
        assert sum(p for _, p in candidates) == pytest.approx(1, abs=1e-5)


def test_fill_mask_prints_one_line_per_candidate(folder, call, capsys):
    call(tool, "the [MASK] sat on the [MASK]", "--model", folder, "--top", 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[MASK] 1" and lines[4] == "[MASK] 2" and len(lines) == 8
    assert all(line.split()[1] == "%" for line in (*lines[1:4], *lines[5:]))


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("the cat", (), r"no \[MASK\] in the text"),
        ("the [mask]", (), r"no \[MASK\] in the text"),
        ("the [MASK] " + "cat " * 9, (), "too long: 11 tokens; the model's maximum is 10"),
        ("the [MASK]", ("--top", 0), "number of candidates is below 1"),
        ("the [MASK]", ("--model", "nowhere"), "no model here: nowhere"),
    ],
)
def test_fill_mask_bad_argument_is_rejected(folder, call, text, more, message):
    with pytest.raises(PipelineError, match=message):
        call(tool, text, "--model", folder, *more)


def test_fill_mask_text_of_maximum_length_is_accepted(folder):
    assert len(fill(folder, "[MASK] " + "cat " * 9, 1)) == 1


def test_fill_mask_special_token_in_text_is_plain_text(folder):
    one, two = (fill(folder, text, 5) for text in ("[MASK] [SEP]", "[MASK] x"))
    # [SEP] became three unknown subwords, not the end of the text.
    assert one != two


def drop(folder, start):
    tensors = load_file(folder / "model.safetensors")
    save_file({n: t for n, t in tensors.items() if not n.startswith(start)}, folder / "model.safetensors")


def set_config(folder, **values):
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | values))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: drop(folder, "cls.predictions"), "does not predict masked tokens"),
        (lambda folder: set_config(folder, is_decoder=True), "reads left to right and fills no mask"),
        (
            lambda folder: set_config(folder, vocab_size=5),
            "more entries than the model has embeddings: .*13, the model 5",
        ),
    ],
)
def test_fill_mask_model_without_mlm_head_is_rejected(folder, call, spoil, message):
    spoil(folder)
    with pytest.raises(PipelineError, match=message):
        call(tool, "the [MASK]", "--model", folder)


def test_fill_mask_needs_neither_pooler_nor_next_sentence_head(folder):
    expected = fill(folder, "the [MASK]", 5)
    drop(folder, ("bert.pooler", "cls.seq_relationship"))
    assert fill(folder, "the [MASK]", 5) == expected
