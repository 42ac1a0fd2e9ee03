"""The first sentence of biographies on Italian Wikipedia, which a page spells as ``{{Bio|Nome=…|Cognome=…|…}}``.

After the documentation of Template:Bio on it.wikipedia.org, without the parameters that few pages use.
"""

from __future__ import annotations

import re

_UNO = re.compile(r"s[^aeiouàèéìòù]|z|gn|pn|ps|x|y", re.IGNORECASE)  # uno scrittore, uno psicologo
_FEMININE = (("tore", "trice"), ("iere", "iera"), ("o", "a"))  # attore -> attrice, filosofo -> filosofa
_BEFORE_MARK = re.compile(r" +(?=[,;.:])")


def biography(_: str, raw: list[str]) -> str:
    """Name, (birth – death), what the person was; '' where the page does not tell name and occupation."""
    given = {key.strip(): " ".join(value.split()) for key, _, value in (argument.partition("=") for argument in raw)}
    name = _join(" ", given, "Titolo", "Nome", "Cognome", "PostCognome")
    was = given.get("FineIncipit") or _occupation(given)
    if not name or not was:
        return ""
    if alias := given.get("PostCognomeVirgola"):
        name = f"{name}, {alias},"
    for event in ("Nascita", "Morte"):
        given[f"Data{event}"] = _join(" ", given, f"GiornoMese{event}", f"Anno{event}")
        given[event] = _join(", ", given, f"Luogo{event}", f"Data{event}")
    given["Vita"] = _join(" – ", given, "Nascita", "Morte")
    life = _join("; ", given, "PreData", "Vita")
    sentence = _BEFORE_MARK.sub("", f"{name} ({life}) {was}" if life else f"{name} {was}")
    return sentence if sentence[-1] in ".!?" else f"{sentence}."


def _occupation(given: dict[str, str]) -> str:
    """è stato uno scrittore e politico italiano, ..."""
    feminine = given.get("Sesso", "").upper() == "F"
    works = [_agree(given[key], feminine) for key in ("Attività", "Attività2", "Attività3") if given.get(key)]
    if not works:
        return ""
    more = given.get("AttivitàAltre", "")
    listed = ", ".join(works) + f" {more}" if more else " e ".join([", ".join(works[:-1]), works[-1]][len(works) < 2 :])
    verb = ("è stata" if feminine else "è stato") if given.get("AnnoMorte") else "è"
    was = given.get("PreAttività") or f"{verb} {_article(works[0], feminine)}"
    given["Origine"] = _agree(given.get("Nazionalità", ""), feminine)
    return f"{was} {listed} {_join(' ', given, 'Origine', 'PostNazionalità')}".replace("un' ", "un'").strip()


def _article(word: str, feminine: bool) -> str:
    if feminine:
        return "un'" if word[0].lower() in "aeiouàèé" else "una"
    return "uno" if _UNO.match(word) else "un"


def _agree(word: str, feminine: bool) -> str:
    """``word``, which stands in the masculine form, as it is said of a woman."""
    for ending, other in _FEMININE:
        if feminine and word.endswith(ending):
            return word.removesuffix(ending) + other
    return word


def _join(between: str, given: dict[str, str], *keys: str) -> str:
    return between.join(given[key] for key in keys if given.get(key))
