"""Imported byte-level BPE and unigram tokenizers give the same ids as transformers' AutoTokenizer."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer

os.environ.setdefault("HF_HUB_OFFLINE", "1")
from pipeline_src.base.errors import PipelineError
from pipeline_src.finetune.finetune import run as finetune
from pipeline_src.interpret.model import ProbedModel
from pipeline_src.pretrain.import_model import main
from pipeline_src.study.finetune import FinetuneParams, TaskHyperparameters
from pipeline_src.study.model import ModelParams
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tokenizer.foreign_tokenizer import read_foreign, save_foreign
from pipeline_src.tokenizer.load import kind_of, load_tokenizer, reading_masks
from pipeline_src.tokenizer.special_tokens import read_templates
from pipeline_src.tools.fill_mask import fill_mask

transformers = pytest.importorskip("transformers")
TRICKY = [
    *(
        "The cat sat on the mat.",
        " two  spaces\tand a tab ",
        "Naïve café, ﬁne №5!",
        "北京 is far",
        "",
        " ",
        "x",
        "don't",
    ),
    *("``quoted''", " the", "a" * 60, "unseen 🦊 emoji", "1,234, (x) - £5"),
]
ANGLES, BRACKETS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
LSTRIP = {"lstrip": True, "rstrip": False, "normalized": True, "single_word": False}


@pytest.fixture(scope="module")
def lines(root) -> list[str]:
    return [line for line in (root / "README.md").read_text(encoding="utf-8").splitlines() if line.strip()]


@pytest.fixture(scope="module", autouse=True)
def _newest_protobuf():
    """Let transformers read SentencePiece models although protobuf is pinned to an older version."""
    from google.protobuf import runtime_version

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime_version, "ValidateProtobufRuntimeVersion", lambda *_, **__: None)
        yield


def write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.fixture(scope="module")
def bpe(lines) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = sorted(ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, BpeTrainer(vocab_size=450, initial_alphabet=alphabet, show_progress=False))
    return tokenizer


@pytest.fixture(scope="module")
def bare(bpe, lines, tmp_path_factory) -> Callable[[str], Path]:
    """Write a model folder like those of the first releases, with a vocabulary and few other files."""

    @functools.cache
    def make(model_type: str) -> Path:
        folder = tmp_path_factory.mktemp(model_type)
        write_json(folder / "config.json", {"model_type": model_type})
        if model_type in SPM_OPTIONS:
            name = "spiece.model" if model_type == "albert" else "spm.model"
            (folder / name).write_bytes(train_sentencepiece(lines, 300, **SPM_OPTIONS[model_type]))
            return folder
        specials = ANGLES if model_type == "roberta" else BRACKETS
        model = json.loads(bpe.to_str())["model"]
        pieces = [*specials[:4], *model["vocab"], specials[4]]
        write_json(folder / "vocab.json", {piece: number for number, piece in enumerate(pieces)})
        merges = "\n".join(" ".join(merge) for merge in model["merges"])
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}\n", encoding="utf-8")
        write_json(folder / "tokenizer_config.json", {"model_max_length": 512})
        return folder

    return make


SPM_OPTIONS = {
    "albert": {
        "pad_id": 0,
        "pad_piece": "<pad>",
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": BRACKETS[::2],
        "user_defined_symbols": [*"().-", "£"],
    },
    "deberta-v2": {
        "pad_id": 0,
        "pad_piece": "[PAD]",
        "bos_id": 1,
        "bos_piece": "[CLS]",
        "eos_id": 2,
        "eos_piece": "[SEP]",
        "unk_id": 3,
        "unk_piece": "[UNK]",
        "user_defined_symbols": [*"().-", "£"],
    },
}


def train_sentencepiece(lines: list[str], vocab_size: int, **options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=vocab_size, minloglevel=2, **options
    )
    return model.getvalue()


def settings(folder: Path, **values) -> None:
    path = folder / "tokenizer_config.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    write_json(path, before | values)


def save_again(folder: Path) -> None:
    """Save the tokenizer with transformers 5, which writes tokenizer.json."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for path in folder.iterdir():
        if path.name != "config.json":
            path.unlink()
    tokenizer.save_pretrained(folder)


def mask_map(folder: Path, mask: str) -> None:
    write_json(folder / "special_tokens_map.json", {"mask_token": {"content": mask, **LSTRIP}})


def as_fast(folder: Path) -> None:
    save_again(folder)
    settings(folder, tokenizer_class="PreTrainedTokenizerFast")


CHANGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "roberta": ("roberta", lambda folder: None),
    "roberta, mask that takes the space": ("roberta", lambda folder: mask_map(folder, "<mask>")),
    "roberta, saved again": ("roberta", save_again),
    "roberta, space first": ("roberta", lambda folder: settings(folder, add_prefix_space=True)),
    "deberta": ("deberta", lambda folder: None),
    "deberta, as it is": ("deberta", as_fast),
    "albert, saved again": ("albert", save_again),
    "deberta-v2": ("deberta-v2", lambda folder: None),
    "deberta-v2, saved again": ("deberta-v2", save_again),
    "deberta-v2, by punctuation": ("deberta-v2", lambda f: settings(f, do_lower_case=True, split_by_punct=True)),
}


def check_ids(folder: Path, model_type: str, lines: list[str], out: Path) -> None:
    """Compare the ids of texts, pairs and masks, in this project and in transformers."""
    reference, made = transformers.AutoTokenizer.from_pretrained(folder), read_foreign(folder, model_type)
    save_foreign(out, made)
    write_json(out / "config.json", {"model_type": model_type})
    ours, again = load_tokenizer(out), transformers.AutoTokenizer.from_pretrained(out)
    for text in [*lines, *TRICKY]:
        ids = ours.encode(text, add_special_tokens=False).ids
        for other in (reference, again):
            assert ids == other(text, add_special_tokens=False, split_special_tokens=True)["input_ids"], text
    first, second = (ours.encode(text, add_special_tokens=False).ids for text in TRICKY[:2])
    ids, segments = read_templates(ours).pair.apply(first, second)
    assert ids == reference(*TRICKY[:2])["input_ids"] and segments == again(*TRICKY[:2]).get("token_type_ids", segments)
    mask = kind_of(ours).mask
    for prompt in (f"The {mask} sat {mask}.", f"{mask} sat", f"a{mask} b"):
        assert reading_masks(ours).encode(prompt).ids == reference(prompt)["input_ids"], prompt
    assert reference.mask_token == mask and reference.pad_token_id == ours.token_to_id(kind_of(ours).pad)


@pytest.mark.parametrize("name", CHANGES)
def test_read_foreign_ids_equal_transformers(bare, lines, tmp_path, name):
    model_type, change = CHANGES[name]
    folder = shutil.copytree(bare(model_type), tmp_path / "theirs")
    change(folder)
    (tmp_path / "ours").mkdir()
    check_ids(folder, model_type, lines, tmp_path / "ours")


def test_read_foreign_tokenizer_json_with_added_tokens_equals_transformers(bpe, lines, tmp_path):
    """As in ModernBERT, special tokens and runs of spaces have ids above the vocabulary's."""
    tokenizer = Tokenizer.from_str(bpe.to_str())
    tokenizer.add_tokens([AddedToken("  ", normalized=True, special=False)])
    flags = {"special": True, "normalized": False}
    tokenizer.add_special_tokens([AddedToken(token, lstrip=token == "[MASK]", **flags) for token in BRACKETS])
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    (tmp_path / "theirs").mkdir(), (tmp_path / "ours").mkdir()
    tokenizer.save(str(tmp_path / "theirs/tokenizer.json"))
    names = {"mask_token": "[MASK]", "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    settings(tmp_path / "theirs", tokenizer_class="PreTrainedTokenizerFast", sep_token="[SEP]", **names)
    write_json(tmp_path / "theirs/config.json", {"model_type": "modernbert"})
    check_ids(tmp_path / "theirs", "modernbert", lines, tmp_path / "ours")


@pytest.mark.parametrize("model_type", ["roberta", "deberta", "albert", "deberta-v2"])
def test_imported_model_fills_masks_and_is_fine_tuned(bare, tmp_path, monkeypatch, model_type):
    folder = shutil.copytree(bare(model_type), tmp_path / "theirs")
    if model_type == "albert":
        save_again(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"max_position_embeddings": 40, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    reference = MODELS[model_type](**sizes).eval()
    torch.manual_seed(0)
    for parameter in reference.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    reference.save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    main(Namespace(source=folder, destination=Path("ours"), lowercase=None))

    inputs = tokenizer(f"The {tokenizer.mask_token} sat.", return_tensors="pt")
    with torch.inference_mode():
        scores = reference(**inputs).logits[0]
    likely = scores[inputs["input_ids"][0] == tokenizer.mask_token_id][0].softmax(-1).topk(5)
    (result,) = fill_mask(ProbedModel.open(Path("ours")), "The [MASK] sat.", 5)
    assert [token for token, _ in result] == tokenizer.convert_ids_to_tokens(likely.indices.tolist())
    assert [share for _, share in result] == pytest.approx(likely.values.tolist(), rel=1e-4)

    write_task("sst2", Path("data/tasks/sst2"), seed=1)
    recipe = TaskHyperparameters(learning_rates=1e-3, epochs=1, batch_sizes=512, max_length=16)
    architecture = ModelParams(
        architecture=model_type.replace("-", "_"), num_hidden_layers=1, hidden_size=16, num_attention_heads=2
    )
    params = FinetuneParams(model="ours", defaults=recipe)
    finetune(seed=1, model=architecture, finetune=params, task="sst2", finetune_seed="1")
    assert len(transformers.AutoTokenizer.from_pretrained("models/finetuned/sst2/1/kept-model")) == len(tokenizer)


MODELS: dict[str, Callable] = {
    "roberta": lambda **sizes: transformers.RobertaForMaskedLM(
        transformers.RobertaConfig(**sizes, type_vocab_size=1, layer_norm_eps=1e-5)
    ),
    "albert": lambda **sizes: transformers.AlbertForMaskedLM(transformers.AlbertConfig(**sizes, embedding_size=8)),
    "deberta": lambda **sizes: transformers.DebertaForMaskedLM(transformers.DebertaConfig(**sizes, **DISENTANGLED)),
    "deberta-v2": lambda **sizes: transformers.DebertaV2ForMaskedLM(
        transformers.DebertaV2Config(
            **sizes, **DISENTANGLED, share_att_key=True, norm_rel_ebd="layer_norm", position_buckets=16
        )
    ),
}
DISENTANGLED = {
    **{"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p", "p2c"]},
    **{"type_vocab_size": 0, "max_relative_positions": -1, "layer_norm_eps": 1e-7, "legacy": False},
}


def saved_with(**parts) -> Callable[[Path], None]:
    """Return a function that saves tokenizer.json with some parts replaced."""

    def change(folder: Path) -> None:
        as_fast(folder)
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        write_json(folder / "tokenizer.json", tokenizer | parts)

    return change


def words(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["pre_tokenizer"] = {"type": "Whitespace"}
    write_json(folder / "tokenizer.json", tokenizer)
    settings(folder, tokenizer_class="PreTrainedTokenizerFast")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (words, "the BPE tokenizer is not byte-level"),
        (lambda folder: settings(folder, mask_token="<m>"), "unsupported spelling of a special token: <m>"),
        (
            lambda folder: (folder / "tokenizer.json").write_text('{"model": {"type": "BPE"}}'),
            "the tokenizer cannot be loaded",
        ),
        (
            saved_with(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "the tokenizer cannot be loaded",
        ),
        (
            saved_with(normalizer={"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}),
            "the tokenizer cannot be loaded",
        ),
        (
            saved_with(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "x"]]}),
            "the tokenizer cannot be loaded: Token `x`",
        ),
    ],
)
def test_read_foreign_unsupported_tokenizer_is_rejected(bare, tmp_path, spoil, message):
    folder = shutil.copytree(bare("roberta"), tmp_path / "theirs")
    save_again(folder)
    spoil(folder)
    with pytest.raises(PipelineError, match=message):
        read_foreign(folder, "roberta")


def test_read_foreign_damaged_sentencepiece_model_is_rejected(bare, lines, tmp_path):
    with pytest.raises(PipelineError, match="the SentencePiece model has no tokenizer.json"):
        read_foreign(bare("albert"), "albert")
    for content, message in (
        (b"\xff\xff\xff", "invalid SentencePiece model"),
        (train_sentencepiece(lines, 200, model_type="bpe"), "is not a unigram model: spm.model"),
    ):
        (tmp_path / "spm.model").write_bytes(content)
        with pytest.raises(PipelineError, match=message):
            read_foreign(tmp_path, "deberta-v2")
