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
# `parts: [all]` means every part that the publisher lists.
ALL_PARTS = ("all",)
# Five special tokens and one other entry. Byte-level BPE also needs an entry for each of the 256 bytes.
MIN_VOCAB_SIZE = {"wordpiece": 6, "byte_bpe": 262, "unigram": 6}


@cache
def known_languages() -> tuple[str, ...]:
    return ("en", *parse_yaml(SENTENCES.read_text(encoding="utf-8")))


class SourceParams(Section):
    """A source of text: the keys that every kind of source has.

    Attributes:
        entry: name of an entry of ``catalogue/sources``. The key in params.yaml is ``from``.
        date: date of the dump in Wikimedia's format (``20260901``), if the entry's addresses need a date.
        parts: names of the dump's parts, as in the addresses, or ``all``. Empty if the entry has no parts.
        language: ISO 639 code of the language whose rules split sentences, or ``und`` for the general rules. Null: the
            language of the dump or the catalogue entry, or ``en`` if there is none.
        segmenter: function that splits text without spaces into words, for whole-word masking. It is written as
            ``MODULE:FUNCTION`` (``jieba:lcut``) and its package must be installed. Null: words are found by spaces and
            the vocabulary's subwords.
        min_words: documents with fewer words are dropped (and counted as ``too_short``). Words are separated by white
            space. In scripts without spaces, two characters (Chinese, Japanese) or five letters (Thai and similar
            scripts) count as a word.
        max_words: maximum number of words in total. Which documents are kept depends on a hash of their ids; dropped
            documents are counted as ``beyond_max_words``. Null keeps all documents.
        filters: rules that drop documents. Books are split into documents first. ``{}``: no rules.
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
            raise ValueError(f"no sentence rules for this language; use one of {known} (und: general rules)")
        return language

    @field_validator("segmenter")
    @classmethod
    def _installed_segmenter(cls, segmenter: str | None) -> str | None:
        # Only check that the package is installed. Importing it here would let params.yaml run arbitrary code.
        module = (segmenter or "").partition(":")[0]
        if module and not distributions_of(module):
            package = module.partition(".")[0]
            raise ValueError(f"package {package} is not installed; install it, or use another such as jieba:lcut")
        return segmenter


class WikipediaParams(SourceParams):
    """A dump of a Wikipedia. Each article becomes a document.

    Attributes:
        lists: ``sentences`` keeps each list item that is a whole sentence, as a paragraph. ``drop`` removes all lists,
            as in the paper ("ignore lists, tables, and headers", section 3.1). The key may be left out: ``drop``.
    """

    kind: Literal["wikipedia"] = "wikipedia"
    lists: Literal["drop", "sentences"] = Field(default="drop", exclude_if="drop".__eq__)


class FilesParams(SourceParams):
    """Files of text: plain text, HTML, EPUB, JSONL or Parquet.

    Attributes:
        sentences_per_document: number of lines per document, for a file with one sentence per line and no marked
            documents (BookCorpus).
        encoding: Python's name of the text files' encoding, such as ``cp1252``. Null detects the encoding.
            A byte order mark overrides it.
        undecodable: what to do with a file that cannot be read as text (binary, a damaged EPUB, an unknown encoding).
            ``drop`` skips, counts and logs the file; ``error`` stops the stage.
        text_column: name of the column with the text, in JSONL and Parquet.
        near_duplicates: threshold of near-duplicate removal within the source. A text is dropped if the Jaccard
            similarity of its 5-word shingles with those of an earlier text is at least this value. Null drops only
            exact copies.
    """

    sentences_per_document: int = Field(default=1000, ge=2, le=10_000_000)
    encoding: str | None = None
    undecodable: Literal["drop", "error"] = "drop"
    text_column: str = Field(default="text", min_length=1)
    near_duplicates: float | None = Field(default=0.8, gt=0, le=1)


class BooksParams(FilesParams):
    """Books. Boilerplate is removed, and a long book is split at its headings into several documents."""

    kind: Literal["books"] = "books"


class TextParams(FilesParams):
    """Any text. A document is a whole file or a row of JSONL or Parquet; all its paragraphs are kept."""

    kind: Literal["text"] = "text"


AnySource = Annotated[WikipediaParams | BooksParams | TextParams, Field(discriminator="kind")]


class CorpusParams(Section):
    """The sources of text, the validation set, and the overlap with evaluation sets.

    Attributes:
        sources: name -> source. All stages read the sources in alphabetical order.
        validation: fraction of documents (up to 0.5) held out to measure the validation loss.
        decontaminate: ``report`` counts the overlap with tasks made from Wikipedia. ``remove`` also drops training
            documents that share 13 consecutive words with an evaluation set of a fetched task (official or your own).
        near_duplicates: threshold of near-duplicate removal across all sources (stage ``tokenize``). A document is
            dropped if the Jaccard similarity of its 5-word shingles with those of an earlier document is at least this
            value. Null drops only exact copies from another source.
    """

    sources: dict[Name, AnySource] = Field(min_length=1)
    validation: float = Field(default=0.01, gt=0, le=0.5)
    decontaminate: Literal["report", "remove"] = "report"
    near_duplicates: float | None = Field(default=None, gt=0, le=1)

    def source(self, name: str) -> AnySource:
        if name not in self.sources:
            hint = f"use one of {', '.join(sorted(self.sources))}"
            raise PipelineError("no such source", name, where="corpus.sources in params.yaml", hint=hint)
        return self.sources[name]


class VocabularyParams(Section):
    """The vocabulary.

    Attributes:
        kind: algorithm. ``wordpiece``: BERT, ELECTRA, DistilBERT. ``byte_bpe``: RoBERTa, DeBERTa v1. ``unigram``:
            ALBERT, DeBERTa v3. ``given``: the vocabulary of the model ``pretrain.init_from``; then all other keys
            except ``num_added_tokens`` are ignored.
        vocab_size: number of entries, including special tokens and single characters. 30,000 in the paper (section 3),
            30,522 in the released uncased vocabulary. Token ids take 16 bits up to 65,536 entries, else 32.
        lowercase: whether to lower-case text and strip accents (the uncased models).
        min_frequency: words that occur less often (in byte-level BPE: pairs) are ignored in training.
        limit_alphabet: maximum number of single characters. Rarer characters become [UNK]. Only for WordPiece.
        unused: number of reserved entries, [unused0] to [unusedN-1]; 994 in the released uncased vocabulary. As there,
            the first 99 follow [PAD], and all further ones follow [MASK]. Only for WordPiece.
        max_word_length: maximum length of a word in characters. Longer words become [UNK]. 100 in transformers, 200 in
            google-research/bert. Byte-level BPE and unigram split longer words instead, and unigram is not trained on
            them.
        num_added_tokens: number of entries to add to a ``given`` WordPiece vocabulary. They are learnt from the words
            that the vocabulary splits into subwords, and take the places of its [unusedN] entries first.
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
            raise ValueError(f"unused ({self.unused}) and 5 special tokens fill all {self.vocab_size} entries")
        return self


Length = Annotated[int, Field(ge=8, le=8192)]


class Lengths(ByPhase):
    """Maximum number of tokens per example in each phase, including [CLS] and [SEP]."""

    __pydantic_extra__: dict[str, Length] = Field(init=False)
    phase1: Length
    phase2: Length

    @property
    def longest(self) -> int:
        return max(dict(self).values())


class ExamplesParams(Section):
    """The sampling of sentence pairs.

    Attributes:
        max_seq_length: maximum number of tokens of an example, by phase; 128 and 512 in the paper (appendix A.2).
        full_length_share: phase -> fraction of its training examples that have the full length. To reach it, shorter
            examples are left out at random. The key may be left out; phases that are not listed keep all examples.
        dupe_factor: number of passes over the corpus, each with its own pairs and masks (as in google-research/bert).
        short_seq_prob: probability that a document is cut into shorter examples (as in google-research/bert).
        random_next_prob: probability that segment B is replaced by text from another document (with ``sop``: that A and
            B are swapped); 0.5 in the paper (section 3.1). As in google-research/bert, a chunk with a single sentence
            has no second part and always gets a random B. So the actual fraction is higher: 54 % at length 128, 60 % at
            length 64. ``nsp_balanced`` avoids this.
        pair_objective: what is predicted about the two segments.
            ``nsp``: whether B follows A or is from another document (paper, section 3.1).
            ``nsp_balanced``: the same, but a chunk with a single sentence also takes the next sentence (at the end of a
            document: the previous one). Then ``random_next_prob`` is exact, except for documents of one sentence.
            ``sop``: whether B follows A or A follows B (ALBERT, Lan et al. 2020, section 3.1).
            ``none``: an example is one segment of full sentences, for MLM alone ("No NSP" in the paper, section 5.1).
        weights: source -> weight of its training examples; all sources or null. Weights are relative, so any unit will
            do. A source that is too short repeats with other pairs and masks. If a source is too long, some of its
            examples are left out.
        temperature: alternative to ``weights``. A source's share is proportional to (its training tokens) **
            temperature; 0.7 in multilingual BERT. 1 means shares by size.
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
            raise ValueError(f"all weights are 0 ({self.weights}); give at least one source a weight above 0")
        return self


class WordVectorsParams(Section):
    """Static word vectors: Word2Vec (Mikolov et al. 2013), trained with gensim.

    The defaults of ``window``, ``negative``, ``sample`` and ``epochs`` are gensim's.

    Attributes:
        method: ``cbow`` predicts a token from the mean of its context, ``skip_gram`` predicts the context from a token.
        width: dimension of a vector; 300 in GLUE's baselines (Wang et al. 2019).
        window: maximum number of context tokens on each side.
        negative: number of negative samples per token.
        sample: relative frequency above which tokens are downsampled.
        epochs: number of passes over the text.
    """

    method: Literal["cbow", "skip_gram"] = "cbow"
    width: int = Field(default=300, ge=2, le=16_384, multiple_of=2)
    window: int = Field(default=5, ge=1, le=1000)
    negative: int = Field(default=5, ge=1, le=1000)
    sample: float = Field(default=0.001, ge=0, le=1)
    epochs: int = Field(default=5, ge=1, le=1000)
