"""Identify the language of a document with the optional library py3langid, for the filter ``language``.

The library's model is naive Bayes over byte n-grams for 139 languages (Lui and Baldwin 2011, IJCNLP). It judges the
document as a whole, so paragraphs in another language lower the probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.filters import FiltersParams

# Function: text -> ISO 639 code -> probability of the language.
Identify = Callable[[str], Mapping[str, float]]
# Codes that py3langid names differently. Dumps of the Norwegian Wikipedia have the code nb (Bokmål).
AS_IN_LIBRARY = {"nb": "no"}


# Cached, since loading the model takes half a second.
@cache
def load_identifier() -> Identify:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
        from threadpoolctl import ThreadpoolController
    except ImportError:
        raise PipelineError(
            "py3langid, which the language filter needs, is not installed",
            "language",
            where="filters of corpus.sources in params.yaml",
            hint="pip install py3langid, or remove `language` from the filters",
        ) from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    threads = ThreadpoolController()

    def identify(text: str) -> Mapping[str, float]:
        # With several threads, sums are rounded differently and take twice as long.
        with threads.limit(limits=1, user_api="blas"):
            return dict(identifier.rank(text))

    return identify


def probability_of(language: str, text: str, load: Callable[[], Identify] = load_identifier) -> float:
    # Rounded to four digits, beyond which results differ between processors.
    return round(load()(text)[_code(language)], 4)


def check_language(
    filters: FiltersParams, language: str | None, source: str, load: Callable[[], Identify] = load_identifier
) -> None:
    """Raise an error if the filter ``language`` is on and py3langid does not know the language.

    Args:
        language: ISO 639 code, perhaps with a variant (``pt-br``). None if it is still unknown, because the source has
            not been downloaded; then only the installation of py3langid is checked.
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
