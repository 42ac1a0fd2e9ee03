"""Sentences without an end: complete but for the full stop, or cut off."""

from __future__ import annotations

import pytest

from pipeline_src.corpus.wikipedia.prose import lacks_only_its_stop, says_something


@pytest.mark.parametrize(
    ("sentence", "says"),
    [
        ("They are:", False),
        ("Total Fertility Rate of Rural and Urban Women in Angola:", False),
        ("Three died in prison, while the others were freed:", True),
        ("L'esistenza dell'uomo per Hitchcock si caratterizza per:", True),  # two words each that an apostrophe joins
        ("It doesn't say where they've all been:", False),
    ],
)
def test_says_something_label_or_announcement_does_not(sentence: str, says: bool) -> None:
    assert says_something(sentence) == says


@pytest.mark.parametrize(
    ("language", "sentence", "whole"),
    [
        ("it", "Nella pallamano la squadra della città milita nel campionato di serie A1", True),
        ("it", "Tra le altre applicazioni di questo metallo vi sono le produzioni di", False),
        ("it", "In questo modo il valore dell'indice di curtosi della variabile è", False),
        ("it", "Centro storico: Borgofortino – Terranova (San Rocco) - Borgogioioso – Passo dei Cappuccini", False),
        ("it", "Byte (B): Reali 8 bit [commercialmente 10 bit o 12 bit]", False),
        ("en", "The people of the towns around skate on the river in winter", True),
        ("en", "The people of the towns around skate on the river in", False),
        ("en", "the people of the towns around skate on the river in winter", False),
        ("en", "The people of the towns around skate on the river in winter,", False),
        ("de", "Die Stadt wurde im Jahr 1200 zum ersten Mal in einer Urkunde erwähnt", True),
        ("de", "Die wichtigsten Orte an diesem langen und schönen Fluss sind", False),
        ("es", "La ciudad fue fundada por los romanos en el siglo primero antes de Cristo", True),
        ("es", "Las ciudades más importantes a lo largo de este río son", False),
        ("fr", "La ville est située au bord de la mer depuis le début du siècle", True),
        ("fr", "Les villes les plus importantes au bord de cette rivière sont", False),
        ("fr-ca", "La ville est située au bord de la mer depuis le début du siècle", True),
        ("sv", "The people of the towns around skate on the river in winter", False),
    ],
)
def test_lacks_only_its_stop_by_language(language: str, sentence: str, whole: bool) -> None:
    assert lacks_only_its_stop(sentence, language) == whole
