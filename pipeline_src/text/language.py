"""Identify the language of a document, for the filter ``language``, with the optional library py3langid.

Its model is naive Bayes over byte n-grams (Lui and Baldwin 2011, IJCNLP), in 139 languages. The document is judged as a
whole: one with some paragraphs in another language has a lower probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.filters import FiltersParams

# Text -> probability of each language, by ISO 639 code.
Identify = Callable[[str], Mapping[str, float]]
# Bokmål, as the Norwegian Wikipedia's dumps say.
AS_IN_LIBRARY = {"nb": "no"}


# Loading takes half a second.
@cache
def load_identifier() -> Identify:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
        from threadpoolctl import ThreadpoolController
    except ImportError:
        raise PipelineError(
            "the language filter needs py3langid",
            "not installed",
            where="filters of corpus.sources in params.yaml",
            hint="pip install py3langid, or remove `language` from the filters",
        ) from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    threads = ThreadpoolController()

    def identify(text: str) -> Mapping[str, float]:
        # Several threads round sums differently, and take twice the time.
        with threads.limit(limits=1, user_api="blas"):
            return dict(identifier.rank(text))

    return identify


# Processors differ after four digits.
def probability_of(language: str, text: str, load: Callable[[], Identify] = load_identifier) -> float:
    return round(load()(text)[_code(language)], 4)


def check_language(
    filters: FiltersParams, language: str | None, source: str, load: Callable[[], Identify] = load_identifier
) -> None:
    """Check that py3langid knows the language if the filter ``language`` is on.

    Args:
        language: see ``split_sentences``; None if it is not known before the source's files are.
    """
    if filters.language is None:
        return
    known = load()("")
    if language is not None and _code(language) not in known:
        raise PipelineError(
            "py3langid does not know this language",
            language,
            where=f"filters of corpus.sources.{source}",
            hint="set the source's language, or remove `language` from its filters",
        )


def _code(language: str) -> str:
    code = language.partition("-")[0]
    return AS_IN_LIBRARY.get(code, code)
