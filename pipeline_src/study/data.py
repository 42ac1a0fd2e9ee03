"""params.yaml: ``corpus``, ``vocabulary``, ``examples``, ``word_vectors``."""

from __future__ import annotations

import operator
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.packages import distributions_of
from pipeline_src.base.yaml_files import parse_yaml
from pipeline_src.study.filters import FiltersParams
from pipeline_src.study.schema import ByPhase, ListedOnce, Name, Section

SENTENCES = Path(__file__).parents[1] / "text/sentences.yaml"
# Every part that the publisher lists.
ALL_PARTS = ("all",)
# Five special tokens and one entry; byte_bpe also has 256 bytes.
MIN_VOCAB_SIZE = {"wordpiece": 6, "byte_bpe": 262, "unigram": 6}


@cache
def known_languages() -> tuple[str, ...]:
    return ("en", *parse_yaml(SENTENCES.read_text(encoding="utf-8")))


class SourceParams(Section):
    """A source of text: the keys that every kind of source has.

    Attributes:
        entry: ``from`` in params.yaml: an entry of ``catalogue/sources``.
        date: date of the dump in Wikimedia's form (``20260901``), if the entry's addresses need a date.
        parts: parts of the entry, by the names in its addresses, or ``all``; empty if the entry has no parts.
        language: ISO 639 code of the language whose rules split sentences; ``und`` for the general rules. Null: the
            language of the dump or of the catalogue's entry, or else ``en``.
        segmenter: function of an installed package that cuts text without spaces into words, for masks of whole words,
            as ``MODULE:FUNCTION`` (``jieba:lcut``); null if spaces and the vocabulary's subwords tell words apart.
        min_words: documents with fewer words are dropped (counted as ``too_short``). Words end at white space; two
            characters of Chinese or Japanese, or five letters of Thai and its like, count as a word.
        max_words: maximum number of words of the source; documents are chosen by their ids, and the others are counted
            as ``beyond_max_words``. Null keeps all documents.
        filters: rules that drop documents; books are cut into documents first. ``{}`` for no rules.
    """

    model_config = ConfigDict(populate_by_name=True)

    entry: Name = Field(validation_alias="from")
    date: str | None = Field(default=None, pattern=r"^\d{8}$")
    parts: Annotated[tuple[Name, ...], ListedOnce] = ()
    language: str | None = None
    segmenter: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    min_words: int = Field(default=0, ge=0, le=1_000_000_000)
    max_words: int | None = Field(default=None, ge=1)
    filters: FiltersParams = FiltersParams()

    @field_validator("date", mode="before")
    @classmethod
    def _date_as_text(cls, value: object) -> object:
        return str(value) if isinstance(value, int) else value

    @field_validator("language")
    @classmethod
    def _known_language(cls, language: str | None) -> str | None:
        if language not in (None, *known_languages()):
            known = ", ".join(known_languages())
            raise ValueError(f"no sentence rules for it; there are {known} (und: general rules)")
        return language

    @field_validator("segmenter")
    @classmethod
    def _installed_segmenter(cls, segmenter: str | None) -> str | None:
        # The stage imports it; here, text in params.yaml must not make anything run.
        module = (segmenter or "").partition(":")[0]
        if module and not distributions_of(module):
            package = module.partition(".")[0]
            raise ValueError(f"{package} is no installed package; pip install it, or name another (jieba:lcut)")
        return segmenter


class WikipediaParams(SourceParams):
    """A dump of a Wikipedia; every article is a document.

    Attributes:
        lists: ``sentences`` keeps the items of lists that are whole sentences, each as a paragraph. ``drop``, the
            default, keeps none, as in the paper ("ignore lists, tables, and headers", section 3.1). Optional.
    """

    kind: Literal["wikipedia"] = "wikipedia"
    lists: Literal["drop", "sentences"] = Field(default="drop", exclude_if="drop".__eq__)


class FilesParams(SourceParams):
    """Files of text.

    Attributes:
        sentences_per_document: lines per document, if a file has a sentence per line and no documents (BookCorpus).
        encoding: Python's name of the text files' encoding, such as ``cp1252``; null detects it.
        undecodable: for a file that is no text, a damaged EPUB or of unknown encoding: ``drop`` counts and logs it,
            ``error`` stops.
        text_column: name of the text's column in JSONL and Parquet.
        near_duplicates: a text whose 5-word shingles have at least this Jaccard similarity with those of an earlier
            text of the source is dropped as a copy; null drops only exact copies.
    """

    sentences_per_document: int = Field(default=1000, ge=2, le=10_000_000)
    encoding: str | None = None
    undecodable: Literal["drop", "error"] = "drop"
    text_column: str = Field(default="text", min_length=1)
    near_duplicates: float | None = Field(default=0.8, gt=0, le=1)


class BooksParams(FilesParams):
    """Books: boilerplate is removed, and a long book becomes several documents, cut at its headings."""

    kind: Literal["books"] = "books"


class TextParams(FilesParams):
    """Any text: a document is a whole file, or a row of JSONL or Parquet, with all of its paragraphs."""

    kind: Literal["text"] = "text"


AnySource = Annotated[WikipediaParams | BooksParams | TextParams, Field(discriminator="kind")]


class CorpusParams(Section):
    """The sources of text, the validation set, and the overlap with evaluation sets.

    Attributes:
        sources: name -> source; all stages read the sources in the order of their names.
        validation: fraction of documents (up to 0.5) that are not trained on, but measure the validation loss.
        decontaminate: ``report`` counts the overlap with tasks made from Wikipedia; ``remove`` also drops training
            documents that share a run of 13 words with an evaluation set of a fetched task (official, or your own).
        near_duplicates: ``tokenize`` drops a document whose 5-word shingles have at least this Jaccard similarity with
            those of an earlier document of any source; null drops only exact copies from another source.
    """

    sources: dict[Name, AnySource] = Field(min_length=1)
    validation: float = Field(default=0.01, gt=0, le=0.5)
    decontaminate: Literal["report", "remove"] = "report"
    near_duplicates: float | None = Field(default=None, gt=0, le=1)

    def source(self, name: str) -> AnySource:
        if name not in self.sources:
            hint = f"name {', '.join(sorted(self.sources))}"
            raise PipelineError("no such source", name, where="corpus.sources in params.yaml", hint=hint)
        return self.sources[name]


class VocabularyParams(Section):
    """The vocabulary.

    Attributes:
        kind: ``wordpiece`` (BERT, ELECTRA, DistilBERT), ``byte_bpe`` (RoBERTa; DeBERTa v1), ``unigram`` (ALBERT;
            DeBERTa v3), or ``given``: that of ``pretrain.init_from``; of the other keys, only ``num_added_tokens``
            counts.
        vocab_size: number of entries, special tokens and single characters included; 30,000 in the paper (section 3),
            30,522 in the released uncased vocabulary. Ids take 16 bits with up to 65,536 entries, else 32.
        lowercase: lower-case text and strip accents (the uncased models).
        min_frequency: the vocabulary is not learnt from rarer words (in byte-level BPE: rarer pairs).
        limit_alphabet: maximum number of single characters; rarer characters become [UNK]. Only for WordPiece.
        unused: entries reserved for later use, [unused0] to [unusedN-1], placed as in the released vocabularies (994
            in the uncased one): up to 99 of them right after [PAD], the rest after [MASK]. Only for WordPiece.
        max_word_length: in characters; longer words become [UNK]. 100 in transformers, 200 in google-research/bert.
            Byte-level BPE and unigram split longer words, and unigram does not learn from them.
        num_added_tokens: entries added to a ``given`` WordPiece vocabulary, learnt from the words that it splits; they
            first replace its entries [unusedN].
    """

    kind: Literal["wordpiece", "byte_bpe", "unigram", "given"] = "wordpiece"
    vocab_size: int = Field(ge=100, le=1_000_000)
    lowercase: bool = True
    min_frequency: int = Field(default=2, ge=1, le=1_000_000_000)
    limit_alphabet: int = Field(default=1000, ge=26, le=1_000_000)
    unused: int = Field(default=0, ge=0, le=60_000)
    max_word_length: int = Field(default=100, ge=1, le=10_000)
    num_added_tokens: int = Field(default=0, ge=0, le=100_000)

    @model_validator(mode="after")
    def _reserved_entries_fit(self) -> VocabularyParams:
        if self.num_added_tokens and self.kind != "given":
            raise ValueError(f"num_added_tokens ({self.num_added_tokens}) is only for kind: given; set it to 0")
        if self.kind == "given":
            return self
        minimum = MIN_VOCAB_SIZE[self.kind]
        if self.vocab_size < minimum:
            raise ValueError(f"vocab_size ({self.vocab_size}) must be at least {minimum} for kind: {self.kind}")
        if self.unused and self.kind != "wordpiece":
            raise ValueError(f"unused ({self.unused}) is only for kind: wordpiece; set it to 0")
        if self.unused + 5 >= self.vocab_size:
            raise ValueError(f"unused ({self.unused}) and 5 special tokens leave none of {self.vocab_size} entries")
        return self


Length = Annotated[int, Field(ge=8, le=8192)]


class Lengths(ByPhase):
    """Tokens per example in each phase of pretraining, [CLS] and [SEP] included."""

    __pydantic_extra__: dict[str, Length] = Field(init=False)
    phase1: Length
    phase2: Length

    @property
    def longest(self) -> int:
        return max(dict(self).values())


class ExamplesParams(Section):
    """The sampling of sentence pairs.

    Attributes:
        max_seq_length: longest example of each phase; 128 and 512 in the paper (appendix A.2).
        full_length_share: phase -> share of its training examples that have the full length; shorter ones are left out
            at random. Optional; other phases have all examples.
        dupe_factor: passes over the corpus, each with its own pairs and masks (same name in google-research/bert).
        short_seq_prob: probability that a document is cut into shorter examples (google-research/bert).
        random_next_prob: probability that sentence B is replaced by text of another document (with ``sop``: that A and
            B are swapped); 0.5 in the paper (section 3.1). A chunk of one sentence has no second part and always gets a
            random B, as in google-research/bert, so that more pairs are random in the end: 54 % at length 128, 60 % at
            64; not with ``nsp_balanced``.
        pair_objective: what is predicted of two segments. ``nsp``: whether B follows A, or is of another document (the
            paper, section 3.1); ``nsp_balanced``: the same, but a chunk of one sentence takes the next one too, and a
            document's last sentence the one before it, so that ``random_next_prob`` holds for all pairs except in
            documents of one sentence; ``sop``: whether B follows A, or A follows B (ALBERT, Lan et al. 2020, section
            3.1); ``none``: there is one segment of full sentences, for MLM alone ("No NSP" of the paper, section 5.1).
        weights: source -> its share of the training examples, in any unit; for all sources, or null. A source that is
            too short for its share repeats, with other pairs and masks; of one that is too long, examples are left out.
        temperature: used instead of weights: a source's share is proportional to its training tokens to this power; 0.7
            in multilingual BERT, 1 for shares by size.
    """

    max_seq_length: Lengths
    full_length_share: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default={}, exclude_if=operator.not_)
    dupe_factor: int = Field(default=5, ge=1, le=1000)
    short_seq_prob: float = Field(default=0.1, ge=0, le=1)
    random_next_prob: float = Field(default=0.5, ge=0, le=1)
    pair_objective: Literal["nsp", "nsp_balanced", "sop", "none"] = "nsp"
    weights: dict[Name, Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]] | None = None
    temperature: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _one_kind_of_share(self) -> ExamplesParams:
        if self.weights is not None and self.temperature is not None:
            raise ValueError("weights and temperature both give shares; set one of them to null")
        if self.weights is not None and not sum(self.weights.values()):
            raise ValueError(f"weights sum to nothing ({self.weights}); give at least one source a weight above 0")
        return self


class WordVectorsParams(Section):
    """Static vectors: Word2Vec (Mikolov et al. 2013) by `gensim`.

    Attributes:
        method: ``cbow`` predicts a token from the mean of its context, ``skip_gram`` the context from a token.
        width: size of a vector; 300 in GLUE's baselines (Wang et al. 2019).
        window: maximum number of context tokens on either side; 5 in gensim.
        negative: negative samples; 5 in gensim.
        sample: relative frequency above which tokens are downsampled; 0.001 in gensim.
        epochs: passes over the text; 5 in gensim.
    """

    method: Literal["cbow", "skip_gram"] = "cbow"
    width: int = Field(default=300, ge=2, le=16_384, multiple_of=2)
    window: int = Field(default=5, ge=1, le=1000)
    negative: int = Field(default=5, ge=1, le=1000)
    sample: float = Field(default=0.001, ge=0, le=1)
    epochs: int = Field(default=5, ge=1, le=1000)
