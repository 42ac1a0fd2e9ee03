"""Tokenizers that transformers 5 builds from a vocabulary alone, with the parts that each of its classes names.

They are those of ``models/<name>/tokenization_<name>.py`` there. What else a ``tokenizer.json`` says is not read, nor
here. DeBERTa v2's passes over the characters that sentencepiece's model would replace.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import BPE, Unigram
from tokenizers.processors import RobertaProcessing, TemplateProcessing

from pipeline_src.tokenizer.byte_bpe import DEBERTA_TOKENS, ROBERTA_TOKENS
from pipeline_src.tokenizer.unigram import ALBERT_TOKENS
from pipeline_src.tools.sentencepiece_model import SentencepieceModel, read_sentencepiece

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # the order in which transformers adds what is missing
AS = {"bos": "cls", "eos": "sep"}  # usually spelt as another role is
SENTENCEPIECE = ("spiece.model", "spm.model")
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
Roles = dict[str, str]


@dataclass(frozen=True)
class Source:
    """What a folder says of its tokenizer.

    Attributes:
        folder: the folder.
        settings: of ``tokenizer_config.json``, and of ``special_tokens_map.json`` where transformers reads that too.
        saved: ``tokenizer.json``; empty where there is none.
    """

    folder: Path
    settings: dict[str, Any]
    saved: dict[str, Any]

    def spelt(self, role: str, usual: str) -> str:
        """The special token of a role, such as ``mask``."""
        token = self.settings.get(f"{role}_token") or usual
        return str(token["content"] if isinstance(token, dict) else token)

    @property
    def model(self) -> dict[str, Any]:
        """The vocabulary that ``tokenizer.json`` holds."""
        return dict(self.saved.get("model") or {})

    @property
    def added(self) -> dict[int, AddedToken]:
        """Tokens beside the vocabulary, by their ids."""
        if listed := self.settings.get("added_tokens_decoder"):
            return {int(number): AddedToken(**flags) for number, flags in listed.items()}
        return {
            flags["id"]: AddedToken(**{name: value for name, value in flags.items() if name != "id"})
            for flags in self.saved.get("added_tokens") or ()
        }


def _bpe(source: Source, roles: Roles) -> Tokenizer:
    """What RoBERTa's and DeBERTa's tokenizers share."""
    if source.saved:
        vocabulary, merges = source.model["vocab"], source.model["merges"]
        merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
        model = BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    else:
        files = [str(source.folder / name) for name in ("vocab.json", "merges.txt")]
        model = BPE(*BPE.read_file(*files), continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=_prefix_space(source, False))
    tokenizer.decoder = ByteLevelDecoder()
    _add_tokens(tokenizer, source, roles)
    return tokenizer


def _roberta(source: Source, roles: Roles) -> Tokenizer:
    tokenizer = _bpe(source, roles)
    ids = tokenizer.get_vocab()
    sep, cls = ((roles[role], ids[roles[role]]) for role in ("sep", "cls"))
    trims = bool(source.settings.get("trim_offsets", True))
    tokenizer.post_processor = RobertaProcessing(sep, cls, trims, _prefix_space(source, False))
    return tokenizer


def _deberta(source: Source, roles: Roles) -> Tokenizer:
    tokenizer = _bpe(source, roles)
    _frame(tokenizer, roles, pair="{cls} $A {sep} {sep} $B {sep}")
    return tokenizer


def _albert(source: Source, roles: Roles) -> Tokenizer:
    pieces, charsmap, more = _pieces(source)
    tokenizer = Tokenizer(Unigram(pieces, unk_id=1, byte_fallback=False))
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not source.settings.get("keep_accents", False):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if source.settings.get("do_lower_case", True):
        steps.append(normalizers.Lowercase())
    if charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    tokenizer.normalizer = normalizers.Sequence(steps)
    scheme = "always" if _prefix_space(source, True) else "never"
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    tokenizer.decoder = MetaspaceDecoder(replacement="▁", prepend_scheme=scheme)
    _add_tokens(tokenizer, source, roles, more)
    if source.saved:
        tokenizer.post_processor = Tokenizer.from_str(json.dumps(source.saved)).post_processor
    else:
        _frame(tokenizer, roles)
    return tokenizer


def _deberta_v2(source: Source, roles: Roles) -> Tokenizer:
    pieces, _, more = _pieces(source)
    unknown = (roles["unk"], 0.0)
    usual = more.unk if more else source.settings.get("unk_id", 1)
    tokenizer = Tokenizer(Unigram(pieces, unk_id=pieces.index(unknown) if unknown in pieces else usual))
    steps: list[Any] = [normalizers.Lowercase()] if source.settings.get("do_lower_case", False) else []
    steps += [normalizers.Replace(Regex(r"\s{2,}|[\n\r\t]"), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Strip(left=False, right=True)])
    scheme = "always" if _prefix_space(source, True) else "first"
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    by_punctuation = [pre_tokenizers.Punctuation("isolated")] if source.settings.get("split_by_punct") else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*by_punctuation, space])
    tokenizer.decoder = MetaspaceDecoder(replacement="▁", prepend_scheme=scheme)
    _add_tokens(tokenizer, source, roles, more)
    _frame(tokenizer, roles)
    return tokenizer


def _frame(tokenizer: Tokenizer, roles: Roles, pair: str = "{cls} $A {sep} $B:1 {sep}:1") -> None:
    names = {"cls": roles["cls"], "sep": roles["sep"]}
    marks = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys(names.values())]
    single = "{cls} $A {sep}".format(**names)
    tokenizer.post_processor = TemplateProcessing(single=single, pair=pair.format(**names), special_tokens=marks)


def _prefix_space(source: Source, usual: bool) -> bool:
    return bool(source.settings.get("add_prefix_space", usual))


def _pieces(source: Source) -> tuple[list[tuple[str, float]], bytes, SentencepieceModel | None]:
    """Pieces with scores, the compiled map of characters, and what a model of sentencepiece says beside."""
    if source.saved:
        steps = source.saved.get("normalizer") or {}
        maps = [step.get("precompiled_charsmap") for step in steps.get("normalizers", [steps])]
        pieces = [(str(piece), float(score)) for piece, score in source.model["vocab"]]
        return pieces, base64.b64decode(next((found for found in maps if found), "")), None
    path = next(source.folder / name for name in SENTENCEPIECE if (source.folder / name).exists())
    model = read_sentencepiece(path)
    return model.pieces, model.charsmap, model


def _add_tokens(tokenizer: Tokenizer, source: Source, roles: Roles, more: SentencepieceModel | None = None) -> None:
    """Add what stands beside the vocabulary, in transformers' order."""
    added = source.added
    flags = {token.content: token for token in added.values()}
    tokens = [added[number] for number in sorted(added)]
    for role in ROLES:
        said = source.settings.get(f"{role}_token")
        if roles[role] not in flags:
            extra = {key: value for key, value in said.items() if key in FLAGS} if isinstance(said, dict) else {}
            flags[roles[role]] = AddedToken(roles[role], **{"normalized": False, **extra, "special": True})
            tokens.append(flags[roles[role]])
    tokens += [token for token in (more.added if more else []) if token.content not in flags]
    for token in tokens:
        token.special = token.special or token.content in roles.values()
    tokenizer.add_tokens(tokens)


USUAL = {  # of transformers, by model_type; it takes the others' tokenizer.json as it is
    **dict.fromkeys(("bert", "electra", "distilbert"), "BertTokenizer"),
    "roberta": "RobertaTokenizer",
    "deberta": "DebertaTokenizer",
    "albert": "AlbertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
}
BUILDERS: dict[str | None, tuple[Callable[[Source, Roles], Tokenizer], Roles]] = {  # with their usual special tokens
    "RobertaTokenizer": (_roberta, ROBERTA_TOKENS),
    "DebertaTokenizer": (_deberta, DEBERTA_TOKENS),
    "AlbertTokenizer": (_albert, ALBERT_TOKENS),
    "DebertaV2Tokenizer": (_deberta_v2, DEBERTA_TOKENS),
}
