"""What a dump says about its own wiki: database name, language, and the names of its namespaces.

A dump opens with ``<siteinfo>``, so links to files and categories are known in any language. What siteinfo does not
say (headings of sections without prose, old names of namespaces, templates of disambiguation pages) stands in the
tables below, by language; English always counts too, since every wiki understands it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

MEDIA, SPECIAL, FILE, CATEGORY = -2, -1, 6, 14
HIDDEN = (MEDIA, SPECIAL, FILE, CATEGORY)  # a link into these namespaces shows no words of the sentence

# Names that a namespace had before a wiki renamed it; siteinfo lists current names only.
OLD_NAMES = {
    "de": {"bild"},
    "en": {"file", "image", "media", "special", "category"},
    "es": {"imagen"},
    "fr": {"image"},
    "it": {"immagine"},
    "nl": {"afbeelding"},
    "pl": {"grafika"},
    "pt": {"imagem"},
    "ru": {"изображение"},
}

# Sections that hold lists, sources or pictures instead of prose, to the next heading of the same or a higher level.
SECTIONS = {
    "en": """reference, references, external link, external links, see also, further reading, note, notes,
        notes and references, references and notes, references and sources, sources and references, footnotes,
        explanatory notes, endnotes, citation, citations, citations and notes, sources, bibliography,
        selected bibliography, works cited, cited works, general references, gallery, image gallery, galleries,
        discography, selected discography, filmography, videography, links, web links, track listing,
        publications, selected publications, further information, related links""",
    "de": "einzelnachweise, weblinks, literatur, siehe auch, anmerkungen, quellen, fußnoten, filmografie, diskografie",
    "es": "referencias, enlaces externos, véase también, bibliografía, notas, notas y referencias, fuentes, galería",
    "fr": """références, notes et références, liens externes, voir aussi, articles connexes, bibliographie, notes,
        annexes""",
    "it": """note, altri progetti, collegamenti esterni, voci correlate, bibliografia, galleria fotografica, galleria,
        discografia, filmografia, fonti, riferimenti, immagini, galleria d'immagini, galleria di immagini""",
    "nl": "referenties, externe links, externe link, zie ook, literatuur, bronnen, noten, bronvermelding",
    "pl": "przypisy, linki zewnętrzne, zobacz też, bibliografia, uwagi",
    "pt": "referências, ligações externas, ver também, bibliografia, notas, notas e referências, galeria",
    "ru": "примечания, ссылки, см. также, литература, источники, галерея",
}

# Templates that mark a page as a list of meanings.
DISAMBIGUATION = {
    "de": ["begriffsklärung"],
    "en": ["disambig", "disambiguation", "disamb", "dab", "hndis", "geodis", "human name disambiguation", "letter-num"]
    + [f"{topic} disambiguation" for topic in ("place name", "place", "number", "mathematical", "airport", "school")],
    "es": ["desambiguación"],
    "fr": ["homonymie"],
    "it": ["disambigua"],
    "nl": ["dp"],
    "pl": ["ujednoznacznienie"],
    "pt": ["desambiguação"],
    "ru": ["неоднозначность", "значения"],
}


@dataclass(frozen=True)
class SiteInfo:
    """A wiki, as far as cleaning its pages needs to know it.

    Attributes:
        name: its database name (``enwiki``), which opens the ids of its documents.
        language: its language code (``en``).
        hidden: lower-case names of the namespaces whose links show no words: files, categories, media, special.
        sections: lower-case headings of the sections to leave out.
        disambiguation: finds the template of a disambiguation page in wikitext.
        redirect: matches wikitext that only redirects, in any language (``#RINVIA [[…]]``); old dumps mark some
            redirects in no other way.
    """

    name: str
    language: str
    hidden: frozenset[str]
    sections: frozenset[str]
    disambiguation: re.Pattern[str]
    redirect: re.Pattern[str] = re.compile(r"\s*#\s?[^\W\d_]+\s*:?\s*\[\[[^\]\n]*\]\]")


def make_siteinfo(name: str, language: str, namespaces: dict[int, str]) -> SiteInfo:
    """Put a site together from what siteinfo says; ``namespaces`` maps numbers to names."""
    hidden = {namespaces[key].lower() for key in HIDDEN if namespaces.get(key)}
    sections: set[str] = set()
    templates: list[str] = []
    for code in dict.fromkeys(("en", language)):
        hidden |= OLD_NAMES.get(code, set())
        sections.update(" ".join(title.split()) for title in SECTIONS.get(code, "").split(",") if title.strip())
        templates += DISAMBIGUATION.get(code, [])
    either = "|".join(re.escape(template) for template in sorted(templates))
    pattern = re.compile(rf"\{{\{{\s*(?:{either})\s*[|}}]", re.IGNORECASE)
    return SiteInfo(name, language, frozenset(hidden), frozenset(sections), pattern)


def read_siteinfo(head: str) -> SiteInfo:
    """Read the site from the start of a dump, up to ``</siteinfo>``."""
    name = re.search(r"<dbname>\s*([\w-]+)\s*</dbname>", head)
    language = re.search(r'<mediawiki\b[^>]*\bxml:lang="([\w-]+)"', head)
    code = language[1] if language else "en"
    namespaces = {
        int(key): unescape(title)
        for key, title in re.findall(r'<namespace key="(-?\d+)"[^>/]*>([^<]*)</namespace>', head)
    }
    # Dumps before 2014 name no database; Wikipedia's is always called after its language.
    fallback = f"{code}wiki" if "<sitename>Wikipedia</sitename>" in head else "wiki"
    return make_siteinfo(name[1] if name else fallback, code, namespaces)


ENGLISH = make_siteinfo("enwiki", "en", {})
