"""Read the facts about a wiki from its dump: database name, language and names of its namespaces.

A dump begins with ``<siteinfo>``, which has the current names of namespaces. The library mwconstants has their aliases.
For each language, ``tables/locales.yaml`` has the headings of sections without prose, and the templates of
disambiguation pages. English names are always included, since every wiki understands them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

from pipeline_src.text.wikipedia.locale import locale_tables

MEDIA, SPECIAL, FILE, CATEGORY = -2, -1, 6, 14
# Links into these namespaces show no words.
HIDDEN = (MEDIA, SPECIAL, FILE, CATEGORY)

ENGLISH_NAMES = frozenset(("media", "special", "file", "image", "category"))
BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
FILE_EXTENSIONS = tuple(
    f".{extension}"
    for extension in """jpg jpeg png svg gif tif tiff webp xcf stl djvu pdf ogg oga ogv opus webm mp3 wav flac mid mpg
    mpeg""".split()
)

# Language codes of Wikipedias, which are the prefixes of links to the article in another language: [[de:Erde]]
LANGUAGES = frozenset(
    """
    aa ab ace ady af ak als alt am ami an ang ann anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar bat-smg
    bbc bcl be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy br bs btm bug bxr ca cbk-zam cdo ce ceb ch cho chr
    chy ckb co cr crh cs csb cu cv cy da dag de dga din diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa fat ff fi
    fiu-vro fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gu guc gur guw gv ha hak haw he hi
    hif ho hr hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd kbp kcg kg
    kge ki kj kk kl km kn knc ko koi kr krc ks ksh ku kus kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo lrc lt
    ltg lv mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mos mr mrj ms mt mus mwl my myv mzn na nah nan nap
    nds nds-nl ne new ng nia nl nn no nov nqo nr nrm nso nv ny oc olo om or os pa pag pam pap pcd pcm pdc pdg pfl pi pih
    pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara rsk ru rue rw sa sah sat sc scn sco sd se sg sh shi shn si
    simple sk skr sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy tdd te tet tg th ti tig tk tl tly tn
    to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo wa war wo wuu xal xh xmf yi yo za zea zgh zh
    zh-classical zh-min-nan zh-yue zu
    """.split()
)

# The wikitext of a redirect in any language (#RINVIA [[…]], #تغییر_مسیر [[…]]). Old dumps have no other mark for some
# redirects.
REDIRECT = re.compile(r"\s*#\s?[^\W\d_][^\s\[\]{}|<>#*:;]*+(?>(?:[\s:]|<!--(?s:.*?)-->)*)\[\[[^\]\n]*\]\]")


@dataclass(frozen=True)
class SiteInfo:
    """The facts about a wiki that cleaning needs.

    Attributes:
        name: database name (``enwiki``), which is the prefix of document ids.
        hidden: lower-case names of the namespaces whose links show no words: media, special, file and category.
        sections: lower-case headings of the sections to drop.
        disambiguation: pattern of the templates that mark a disambiguation page.
    """

    name: str
    language: str
    hidden: frozenset[str]
    sections: frozenset[str]
    disambiguation: re.Pattern[str]


def make_siteinfo(name: str, language: str, namespaces: dict[int, str]) -> SiteInfo:
    # `namespaces`: number -> name.
    hidden = set(ENGLISH_NAMES)
    for key in HIDDEN:
        if namespaces.get(key):
            hidden.add(namespaces[key].lower())
    if language != "en":
        hidden |= _aliases(language)
        # The code in the database name may differ from the language: the Wikipedia in nb is at no.wikipedia.org.
        hidden |= _aliases(name.removesuffix("wiki").replace("_", "-"))
    tables = locale_tables()
    sections: set[str] = set()
    templates: set[str] = set()
    for code in ("en", language):
        sections.update(tables["sections"].get(code, ()))
        templates.update(tables["disambiguation"].get(code, ()))
    either = "|".join(map(re.escape, sorted(templates)))
    pattern = re.compile(rf"\{{\{{\s*(?:{either})\s*[|}}]", re.IGNORECASE)
    return SiteInfo(name, language, frozenset(hidden), frozenset(sections), pattern)


def _aliases(code: str) -> set[str]:
    # Return the names and aliases of the hidden namespaces at CODE.wikipedia.org.
    # Imported here, since the import takes 0.1 s and English does not need it.
    from mwconstants.namespaces import get_language_list_prefixes

    namespaces = ("Media", "Special", "File", "Category")
    return {alias.lower() for namespace in namespaces for alias in get_language_list_prefixes(namespace, code)}


def is_file_name(name: str) -> bool:
    # Return whether a name is that of a picture, recording, film or scanned book.
    return name.rstrip(f" _\t\n{BIDI_CONTROLS}").lower().endswith(FILE_EXTENSIONS)


def read_siteinfo(head: str) -> SiteInfo:
    name = re.search(r"<dbname>\s*([\w-]+)\s*</dbname>", head)
    language = re.search(r'<mediawiki\b[^>]*\bxml:lang="([\w-]+)"', head)
    code = language[1] if language else "en"
    namespaces = {
        int(key): unescape(title)
        for key, title in re.findall(r'<namespace key="(-?\d+)"[^>/]*>([^<]*)</namespace>', head)
    }
    # Dumps before 2014 do not name the database. For a Wikipedia, the name is the language code followed by "wiki".
    fallback = f"{code}wiki" if "<sitename>Wikipedia</sitename>" in head else "wiki"
    return make_siteinfo(name[1] if name else fallback, code, namespaces)


ENGLISH = make_siteinfo("enwiki", "en", {})
