"""params.yaml: the key ``filters`` of a source, groups of rules that drop documents.

The rules are those of published corpora. ``filters: {gopher_quality: {min_words: 20}}`` switches on one group and
changes one of its thresholds; all other groups stay off. A threshold of null switches off a single rule. The defaults
are the published thresholds. They never change, so they may be left out of params.yaml.

``pipeline_src/text/filters.py`` applies the rules, and counts dropped documents by ``GROUP.KEY``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from pipeline_src.study.schema import Section

Count = Annotated[int, Field(ge=0, le=1_000_000_000)] | None
Share = Annotated[float, Field(ge=0, le=1)] | None
Rate = Annotated[float, Field(ge=0, le=1_000_000)] | None

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class GopherQuality(Section):
    """Quality rules of Gopher's MassiveText (Rae et al. 2021, arXiv:2112.11446, appendix A.1).

    Words are separated by white space, or split by length in scripts without spaces (``text/words.py``). The first four
    rules ignore words that consist of symbols.

    Attributes:
        min_words, max_words: number of words.
        min_mean_word_length, max_mean_word_length: mean number of characters per word. A Han or kana character counts
            as 2.5.
        max_hashes_per_word: number of ``#`` divided by the number of words.
        max_ellipses_per_word: number of ``...`` and ``…`` divided by the number of words.
        max_bullet_lines: fraction of lines that begin with ``•`` or ``-``.
        max_ellipsis_lines: fraction of lines that end with an ellipsis.
        min_alphabetic_words: fraction of words with a letter.
        min_stop_words: number of different ``stop_words`` that occur.
        stop_words: frequent words. For a language other than English, change the list or set min_stop_words to null.
            The rule is skipped for a text in a script without spaces, unless a stop word is in such a script.
    """

    partial: ClassVar[bool] = True

    min_words: Count = 50
    max_words: Count = 100_000
    min_mean_word_length: Rate = 3
    max_mean_word_length: Rate = 10
    max_hashes_per_word: Rate = 0.1
    max_ellipses_per_word: Rate = 0.1
    max_bullet_lines: Share = 0.9
    max_ellipsis_lines: Share = 0.3
    min_alphabetic_words: Share = 0.8
    min_stop_words: Count = 2
    stop_words: tuple[str, ...] = STOP_WORDS


class GopherRepetition(Section):
    """Repetition rules of Gopher's MassiveText (Rae et al. 2021, arXiv:2112.11446, table A1).

    Attributes:
        max_duplicate_paragraphs: fraction of paragraphs that repeat an earlier one. Paragraphs are separated by blank
            lines. Text that this project has cleaned has no blank lines, so it always passes.
        max_duplicate_paragraph_chars: fraction of the text's characters that are in such paragraphs.
        max_duplicate_lines, max_duplicate_line_chars: the same for lines.
        max_top_2_gram, ...: fraction of the text's characters that are in its most frequent 2-gram (3-gram, 4-gram) of
            words.
        max_duplicate_5_grams, ...: fraction of the text's characters that are in repeated 5-grams (to 10-grams).
    """

    partial: ClassVar[bool] = True

    max_duplicate_paragraphs: Share = 0.3
    max_duplicate_paragraph_chars: Share = 0.2
    max_duplicate_lines: Share = 0.3
    max_duplicate_line_chars: Share = 0.2
    max_top_2_gram: Share = 0.20
    max_top_3_gram: Share = 0.18
    max_top_4_gram: Share = 0.16
    max_duplicate_5_grams: Share = 0.15
    max_duplicate_6_grams: Share = 0.14
    max_duplicate_7_grams: Share = 0.13
    max_duplicate_8_grams: Share = 0.12
    max_duplicate_9_grams: Share = 0.11
    max_duplicate_10_grams: Share = 0.10


class C4(Section):
    """C4's document rules (Raffel et al. 2020, JMLR 21(140), section 2.2).

    C4 also removes single lines. Here such lines stay in the text, but the rules ignore them. A line is ignored if

    - it does not end in ``.``, ``?``, ``!``, a quotation mark or another script's full stop (Thai, Lao: a letter),
    - it has fewer than three words, or a word of over 1,000 characters, or
    - it mentions JavaScript, or a policy on cookies or privacy.

    Attributes:
        max_lorem_ipsum: number of times that "lorem ipsum" occurs in a line.
        max_curly_brackets: number of ``{`` in a line.
        min_sentences: number of sentences in all lines that are not ignored.
    """

    partial: ClassVar[bool] = True

    max_lorem_ipsum: Count = 0
    max_curly_brackets: Count = 0
    min_sentences: Count = 5


class FineWeb(Section):
    """FineWeb's quality rules (Penedo et al. 2024, arXiv:2406.17557, section 3.5). Blank lines do not count.

    Attributes:
        min_punctuated_lines: fraction of lines that end with sentence-final punctuation of any script.
        max_short_lines: fraction of lines with up to 30 characters (Han and kana: 12).
        max_duplicate_line_chars: fraction of the text's characters that are in lines that repeat an earlier line.
        max_newlines_per_word: number of line ends divided by the number of words.
    """

    partial: ClassVar[bool] = True

    min_punctuated_lines: Share = 0.12
    max_short_lines: Share = 0.67
    max_duplicate_line_chars: Share = 0.01
    max_newlines_per_word: Rate = 0.3


class Language(Section):
    """Language identification with the optional package py3langid.

    Attributes:
        min_probability: minimum probability of the source's language. 0.65 is FineWeb's threshold, but FineWeb uses
            another library.
    """

    partial: ClassVar[bool] = True

    min_probability: float = Field(default=0.65, gt=0, le=1)


class FiltersParams(Section):
    """Groups of rules, applied in the order of the attributes until a rule drops the document.

    Attributes:
        gopher_quality, gopher_repetition, c4, fineweb, language: thresholds that differ from the published ones. ``{}``
            uses all published thresholds. A group that is left out is off.
    """

    partial: ClassVar[bool] = True

    gopher_quality: GopherQuality | None = None
    gopher_repetition: GopherRepetition | None = None
    c4: C4 | None = None
    fineweb: FineWeb | None = None
    language: Language | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _on_or_left_out(cls, value: object) -> object:
        if value is None:
            raise ValueError("write {} for the published thresholds, or leave the group out to switch it off")
        return value
