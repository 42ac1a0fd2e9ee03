"""Distinguish a sentence that only introduces a list, table or formula from one that merely lacks its full stop.

``They are`` and ``Total Fertility Rate:`` say nothing without what follows; ``Three died in prison, while the others
were freed:`` does. A sentence without punctuation at its end is complete unless its last word is one of those below,
which end no sentence in that language. In other languages a sentence without punctuation is never complete.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pipeline_src.corpus.wikipedia.markers import FULL_STOPS, split_exactly

MIN_WORDS = 8  # words of a sentence that says something without its end
MIN_LOWERCASE_WORDS = 6  # words in lower case of a sentence without its full stop, unlike most titles and labels
STOPS = FULL_STOPS | {":"}  # a text without any of these is one sentence
UNENDED = frozenset(",;:–—-/([&+=")  # after these a sentence continues

# words that hardly end a sentence: articles, prepositions, conjunctions, verbs that need an object
UNFINISHED = {
    "de": """der die das den dem des ein eine einen einem einer eines kein keine und oder aber sondern denn dass ob wenn
        weil als wie sowie bis von vom zu zum zur in im bei beim auf aus für gegen ohne um durch über unter nach vor
        mit zwischen ist sind war waren wird werden sei seien gilt lautet lauten folgt folgende folgenden dann also
        bzw nämlich""",
    "en": """the a an and or but nor that which who whose whom if when where while because than then as of to in on at
        by for from with without into onto between under over about through within against via per is are was were be
        been being has have had having does do say says become becomes get gets follows yields gives include includes
        including included either both such namely thus hence so also let its their his her this these those
        following""",
    "es": """el la los las lo un una unos unas y e o u pero que quien cual cuales cuyo cuya si cuando donde como porque
        aunque de del a al en con por para sin sobre entre hasta desde según es son era eran fue fueron está están
        sea sean ha han tiene tienen se resulta vale sigue siguiente siguientes entonces tal su sus este esta estos
        estas""",
    "fr": """le la les un une des du de d et ou mais ni que qui dont où si quand lorsque comme car à au aux en dans sur
        sous par pour avec sans entre vers chez est sont était étaient soit soient sera a ont avait on se vaut
        devient donne suit suivant suivante suivants suivantes alors ainsi donc tel telle tels telles son sa ses leur
        leurs ce cet cette ces""",
    "it": """il lo la i gli le un uno una e ed o od oppure ma né che chi cui se quando dove come perché poiché di a ad
        da in con su per tra fra del dello della dei degli delle al allo alla ai agli alle dal dallo dalla dai dagli
        dalle nel nello nella nei negli nelle sul sullo sulla sui sugli sulle col coi è sono era erano fu furono sia
        siano sarà ha hanno aveva si vale valgono risulta risultano diventa diventano segue seguono seguente seguenti
        allora ovvero cioè quindi dunque tale tali quale quali anche suo sua suoi sue loro questo questa questi
        queste""",
}
_ELIDED = re.compile(r"(?<=\w)['’](?=\w{3})")  # between two words: dell'uomo
_UNFINISHED = {language: frozenset(words.split()) for language, words in UNFINISHED.items()}


def says_something(sentence: str) -> bool:
    """Return whether a sentence without its end is more than ``They are:`` or a label (``Total Fertility Rate:``)."""
    words = _ELIDED.sub("' ", sentence).split()
    return len(words) >= MIN_WORDS and 3 * sum(word[:1].isupper() for word in words) <= 2 * len(words)


@lru_cache(64)  # called for a paragraph, and again for what follows it
def lacks_only_its_stop(text: str, language: str) -> bool:
    """Return whether the last sentence of a text without punctuation at its end is complete, judged by its words."""
    unfinished = _UNFINISHED.get(language.partition("-")[0])
    if unfinished is None or text[-1:] in UNENDED or text.count(" ") < MIN_LOWERCASE_WORDS:
        return False
    if text[text.rfind(" ") + 1 :].lower().rpartition("'")[2] in unfinished:
        return False
    sentence = split_exactly(text, language)[-1] if any(stop in text for stop in STOPS) else text
    words = sentence.split()
    small, capitals = sum(word[0].islower() for word in words), sum(word[0].isupper() for word in words)
    long = len(words) >= MIN_WORDS or says_something(sentence)
    return long and sentence[:1].isupper() and small >= MIN_LOWERCASE_WORDS and 2 * capitals <= len(words)
