"""Sentences without an end: complete but for the full stop, or cut off."""

from __future__ import annotations

import textwrap

import pytest

from pipeline_src.text.wikipedia import prose
from pipeline_src.text.wikipedia.prose import (
    begins_with_sentence,
    lacks_only_its_stop,
    says_something,
)
from pipeline_src.text.wikipedia.wikitext import clean


def test_prose_example_of_the_module_is_what_it_makes() -> None:
    blocks = textwrap.dedent(prose.__doc__ or "").split("\n\n")
    page, marked, kept = (textwrap.dedent(block) for block in blocks if block.startswith("    "))
    assert marked.count("‹hole›") == page.count("{{odd") == 2
    assert clean(page) == kept.replace(" .", ".")


@pytest.mark.parametrize(
    ("language", "lead_in", "says"),
    [
        ("en", "They are:", False),
        ("en", "Total Fertility Rate of Rural and Urban Women in Angola:", False),
        ("en", "The five employers with the most employees in the state were:", False),
        ("en", "Three died in prison, while the others were freed:", True),
        ("en", "Although the mill was old, it ground the corn of the whole town:", True),
        ("en", "It has wheels, but the main parts of the old mill are:", False),
        ("en-gb", "Three died in prison, while the others were freed:", True),
        ("it", "L'esistenza dell'uomo per Hitchcock si caratterizza per:", False),
        ("it", "Il mulino era vecchio, ma macinava il grano di tutta la città:", True),
        ("de", "Die Mühle war schon alt, aber das Haus neben ihr war damals noch neu:", True),
        ("sv", "Kvarnen var gammal, medan huset bredvid den var alldeles nytt:", False),
    ],
)
def test_says_something_lead_in_of_two_clauses_does(language: str, lead_in: str, says: bool) -> None:
    assert says_something(lead_in, language) == says


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


@pytest.mark.parametrize(
    ("language", "text", "begins"),
    [
        ("en", "The wheel turns in the river and it drives the two stones.", False),  # no verb that is listed
        ("en", "The wheel is in the river and drives the two heavy stones.", True),
        ("en", "The wheel is in the river and drives the two heavy stones", False),
        ("en", "“The wheel was in the river, and it drove the heavy stones.”", True),
        ("en", "the wheel is in the river and drives the two heavy stones.", False),
        ("en", "The wheel is new.", False),
        ("en", "A heavy wheel of the mill, which is made of old wood.", False),
        ("en", "That the wheel was so heavy and was made of wood.", False),
        ("en", "When the river is low, the wheel of the mill stands still.", True),
        ("en", "Wheel: the part of the mill that is in the river all day.", False),
        ("en", "Wheel – it is the part of the mill in the river all day.", False),
        ("en", "Miller, John; Smith, Anna (1999). The Old Mill is by the River. London.", False),
        ("fr", "La roue est dans la rivière et fait tourner les deux meules.", True),
        ("fr", "La roue du moulin, qui est en bois de chêne très lourd.", False),
        ("fi", "Mylly seisoo joen rannalla ja sen ratas pyörittää kahta suurta kiveä koko päivän.", True),
        ("ja", "水車は川の中にあり、二つの大きな石を一日中ゆっくりと回している。", True),
        ("ja", "水車は川にある。", False),
        ("ar", "تدور العجلة في النهر طوال اليوم وتحرك الحجرين الكبيرين في الطاحونة.", True),
    ],
)
def test_begins_with_sentence_unlike_a_label_or_a_source(language: str, text: str, begins: bool) -> None:
    assert begins_with_sentence(text, language) == begins
