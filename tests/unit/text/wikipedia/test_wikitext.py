"""Wikitext to prose: what goes and what kept."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_src.text.wikipedia.siteinfo import make_siteinfo
from pipeline_src.text.wikipedia.wikitext import clean
from tests.growth import TIMES, assert_linear
from tests.unit.text.wikipedia.hostile_pages import RUN, pages

PLAIN = "The river runs north through two counties before it meets the sea."


def page(sentence: str) -> str:
    """A page with ``sentence`` between two plain paragraphs."""
    return f"{PLAIN}\n\n{sentence}\n\n{PLAIN}"


def cleaned(sentence: str) -> str:
    """What becomes of ``sentence`` between two plain paragraphs; '' when it goes."""
    lines = clean(page(sentence)).split("\n")
    assert lines[0] == lines[-1] == PLAIN
    return "\n".join(lines[1:-1])


@pytest.mark.parametrize(
    "markup",
    [
        "== Early history of the region. ==",
        "* An item of a list that reads like a sentence.",
        "# An item of a list that reads like a sentence.",
        ": An indented line that reads like a sentence.",
        "; A term that reads very much like a sentence.",
        "[[File:Bridge.jpg|thumb|The [[bridge]] as seen from the south.]]",
        "[[Category:Rivers with long names that end in a stop.]]",
        "[[de:Ein Artikel in einer anderen Sprache der Welt.]]",
        "{{Infobox river|name=The long river of the north.|length={{convert|5|km}}}}",
        '{| class="wikitable"\n|-\n| A cell that reads very much like a sentence.\n|}',
        "<gallery>\nFile:a.jpg|A caption that reads very much like a sentence.\n</gallery>",
        "<math>x = \\odd{1}{2} \\text{ and this is a formula for all we know.}</math>",
        "<!-- A comment that reads very much like a sentence. -->",
        "<ref>Smith, J. (1999). A book that ends with a full stop.</ref>",
        "<REF name=x>Smith, J. (1999). A book that ends with a stop.</ref>",
        "__NOTOC__",
        "----",
        " for x in range(10): print(x).",
        "A caption without a stop",
    ],
)
def test_clean_other_than_prose_is_removed(markup: str) -> None:
    assert cleaned(markup) == ""


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("It is a [[river]] of the [[Europe|European]] plain.", "It is a river of the European plain."),
        ("The show [[CSI: Miami]] ended in the year 2012.", "The show CSI: Miami ended in the year 2012."),
        ("See [[:Category:Rivers|all the rivers]] of this land.", "See all the rivers of this land."),
        ("It is ''very'' '''long''' and '''''quite''''' wide.", "It is very long and quite wide."),
        ("The ''Iliad'''s first line is known to everyone.", "The Iliad's first line is known to everyone."),
        ("It is {{convert|5|km|mi|abbr=on}} long at this point.", "It is 5 km long at this point."),
        ("Adults weigh {{convert|60|and(-)|80|kg}} or even more.", "Adults weigh 60 and 80 kilograms or even more."),
        ("A man of {{convert|5|ft|10|in}} stood at the gate.", "A man of 5 feet 10 inches stood at the gate."),
        ("The word {{lang|grc|ἀναρχία}} means without a ruler.", "The word ἀναρχία means without a ruler."),
        ("{{about|the bridge|the song|Mill (song)}}The bridge is old and long.", "The bridge is old and long."),
        ("{{coord|12|N|70|W|display=title}}The town is in the far north.", "The town is in the far north."),
        ("It always has the form {{carbon}}<sub>n</sub>{{hydrogen}}<sub>2n</sub>.", "It always has the form CnH2n."),
        ("It grew warmer by {{convert|5|C-change}} at this point.", "It grew warmer by 5 °C at this point."),
        ("It was built {{circa|1850}} by unknown craftsmen.", "It was built c. 1850 by unknown craftsmen."),
        ("{{As of|2010|5}}, it had many thousand readers.", "As of May 2010, it had many thousand readers."),
        ("It had readers {{as of|2010|lc=y}} in many lands.", "It had readers as of 2010 in many lands."),
        ("Ethanol is {{chem|C|2|H|6|O}}, a simple compound.", "Ethanol is C2H6O, a simple compound."),
        ("The {{nowrap|[[Pope]] {{abbr|St|Saint}} John}} spoke then.", "The Pope St John spoke then."),
        ("Anna ({{lang-ru|Анна}}; {{IPA|x}}; born 1900) wrote.", "Anna (Russian: Анна; born 1900) wrote."),
        ("Anna ({{IPA|x}}; born 1900 {{cn}}) wrote many books.", "Anna (born 1900) wrote many books."),
        ("Anna ({{IPA|a&#44;b}}, a very large city) wrote it.", "Anna (a very large city) wrote it."),
        ("It spells {{IPA|a{{!}}5b}} in their language.", "It spells a|5b in their language."),
        ("Anna ({{IPA|x}}) wrote many books {{cn}}, all short.", "Anna wrote many books, all short."),
        ("A fact<ref name=a /> and more<ref>x</ref> of them follow.", "A fact and more of them follow."),
        ("See [http://example.org the page] of this project.", "See the page of this project."),
        ("One line goes\n<!-- x -->\non in the next line.", "One line goes on in the next line."),
        ("One line of the paragraph\ngoes on in the next line.", "One line of the paragraph goes on in the next line."),
        ("Water is H<sub>2</sub>O &amp; freezes at 0&nbsp;°C.", "Water is H2O & freezes at 0 °C."),
        ("If <math>n</math> is even, so is <math>n+2</math> too.", "If n is even, so is n+2 too."),
        ("The work has two large parts. They are as follows:\n* one\n* two", "The work has two large parts."),
        ("<blockquote>A quotation is prose like any other.</blockquote>", "A quotation is prose like any other."),
        ("The mark <nowiki>[[x]]</nowiki> makes a link of a word.", "The mark x makes a link of a word."),
        ("The tag &lt;ref&gt; marks a note in this language.", "The tag marks a note in this language."),
    ],
)
def test_clean_markup_in_a_sentence_is_rendered(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        (r"It is known. Here <math>\odd{a}{b}</math> is small. The rest follows.", "It is known. The rest follows."),
        (r"The mean (that is <math>\odd{x}</math>) is known to all.", "The mean is known to all."),
        (r"If <math>\alpha \le x_{12}</math>, then it is small.", "If α ≤ x_12, then it is small."),
        (r"The sum <math>\pi^2 + x^{-10}</math> is no whole number.", "The sum π² + x⁻¹⁰ is no whole number."),
        ("The command <code>ls -l</code> lists the files there.", "The command ls -l lists the files there."),
        ("First fact here. Use <code>a[[b]]</code> now. Last fact here.", "First fact here. Last fact here."),
        (
            "It has a density of {{Pop density|1|2|km2}}. Many people live there all year.",
            "Many people live there all year.",
        ),
        (f"{PLAIN} The town is at {{{{coord|odd|display=inline,title}}}}.", PLAIN),
        ("They are {{X}}<sub>n</sub>{{Y}}<sub>2n</sub>. All of them burn in the air.", "All of them burn in the air."),
        (f"{PLAIN}\n:<math>y</math>\nwhere x is the mass. {PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN} It is given by\n<math>\\odd y</math>\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN} It is given by\n:<math>\\odd y</math>\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (rf"{PLAIN} Take <math>\odd x</math>! and so on (see there). {PLAIN}", f"{PLAIN} {PLAIN}"),
        (f"{PLAIN}\n{PLAIN}\n{PLAIN} They are:\n* one\n* two", f"{PLAIN} {PLAIN} {PLAIN}"),
        ("It is run by T.U.A. (of the town). They are:\n* one\n* two", "It is run by T.U.A. (of the town)."),
        (f"{PLAIN} As Mr. J. G. Smith wrote:\n\n* one\n* two", PLAIN),
        (f"The sign <code>?!</code> means a question here. {PLAIN}", PLAIN),
        (f"{PLAIN} The ports are:\n\n{{| class=x\n|-\n| a\n|}}\n\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN} They are:\n<ol>\n<li>one of the two here.</li>\n</ol>\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN} They are:\n{{{{ordered list|one|two}}}}\n\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN} They react:\n\nH<sup>+</sup> + F<sup>-</sup> ⇌ HF + (aq)\n\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN}\n\n(a caption left here by somebody)\n\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
    ],
)
def test_clean_sentence_with_a_gap_is_dropped(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("&lt;!-- A comment in a comment that is none.", "A comment in a comment that is none."),
        ("The end of a note is &lt;&lt;/ref in this language.", "The end of a note is ref in this language."),
        ("Two brackets &#91;&#91;a&#93;&#93; make a link of a word.", "Two brackets a make a link of a word."),
        ("It is 5&#39;&#39; long and as wide as that, they say.", 'It is 5" long and as wide as that, they say.'),
        ("The tag '<b></b>' makes a word bold in this language.", "The tag ' makes a word bold in this language."),
        ("The end is near . {{foo}}. The end is here for everyone.", "The end is near. The end is here for everyone."),
        ("The end is near {|)(and here is the rest of the line.", "The end is near)(and here is the rest of the line."),
        ('The end is near (""and here it is again).', "The end is near (and here it is again)."),
        ("The first line\u2028goes on\fand on\x85in one paragraph.", "The first line goes on and on in one paragraph."),
        ("\x1fThe line is short here.", ""),
        ("The line is ((short)) ( ; ).", ""),
    ],
)
def test_clean_stray_marks_and_empty_brackets_are_removed(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("He watched [[Re:Zero]] and played [[Nier:Automata]].", "He watched Re:Zero and played Nier:Automata."),
        ("See [[:Category:Rivers of France]] for the others.", "See Category:Rivers of France for the others."),
        ("See [[:de:Erde]] and [[wikt:word]] for more of them.", "See Erde and word for more of them."),
        ("It is [[fr:Terre]] in both of the two languages.", "It is in both of the two languages."),
        ("The miller's [[//mill.example/a page]] is short.", "The miller's page is short."),
        ("The old [[Mill (town){{!}}mill]] is by the river.", "The old mill is by the river."),
        ("He keeps [http://[2001:db8::1]/a a page] about it.", "He keeps a page about it."),
        ("He keeps http://[2001:db8::1]/a for all of them.", "He keeps for all of them."),
    ],
)
def test_clean_link_shows_its_words(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("In 1990<br clear=all>the town by the river grew.", "In 1990 the town by the river grew."),
        ("In 1990</br>the town by the river grew.", "In 1990 the town by the river grew."),
        ('In 1990<br style="a > b" />the town by the river grew.', "In 1990 the town by the river grew."),
        ('The town<ref name="a > b" /> by the river grew.', "The town by the river grew."),
        ('The town<ref name="a>b</ref> by the "river" grew.', 'The town by the "river" grew.'),
        ('The <span title="a>town "by</span> the river grew.', 'The town "by the river grew.'),
        ("The <span style='a > b'\nid=c>town</span> by the river grew.", "The town by the river grew."),
        ('It covers 2 km<sup style="x">2</sup> of the old town.', "It covers 2 km² of the old town."),
        ("The town is old.<includeonly> It is hidden.</includeonly> It grew.", "The town is old. It grew."),
        ("The <noinclude>old </noinclude>town by the river grew.", "The old town by the river grew."),
        ("The <span <includeonly>a</includeonly>id=b>town</span> by the river grew.", "The town by the river grew."),
        ("The town<style>.a { color: red }</style> by the river grew.", "The town by the river grew."),
        ("The [[Haus]]<nowiki/>es of l'<nowiki/>''arte'' are in the town.", "The Hauses of l'arte are in the town."),
    ],
)
def test_clean_tag_any_spelling_is_removed(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ('The mill<span style="display:none">000</span> stands by the river.', "The mill stands by the river."),
        (
            "The <SPAN STYLE='color:red; Display : None;'>x</SPAN>mill stands by the river.",
            "The mill stands by the river.",
        ),
        (
            'The mill <span style="visibility:hidden">and a house</span> stands by the river.',
            "The mill stands by the river.",
        ),
        ('The mill <span class="a sortkey b">x</span>stands by the river.', "The mill stands by the river."),
        ('The mill <span class="sortkeys">that stands</span> is old.', "The mill that stands is old."),
        ("The mill <span hidden>x</span>stands by the river.", "The mill stands by the river."),
        ('The mill <span title="a hidden wheel">that stands</span> is old.', "The mill that stands is old."),
        ('The <b style="display:none">x <b>y</b> z</b> mill stands by the river.', "The mill stands by the river."),
        ("The <span hidden>x <span>y</span> z</span> mill stands by the river.", "The mill stands by the river."),
        ("The <span hidden>x <s>y</span> z</s> mill stands by the river.", "The mill stands by the river."),
        (f'<div style="display:none">\n{PLAIN}\n\n{PLAIN}\n</div>\n{PLAIN}', PLAIN),
        (f'{PLAIN}<div style="display:none">{PLAIN}</div>{PLAIN}', f"{PLAIN}\n{PLAIN}"),
        ("The <span hidden>mill stands by the river.", "The mill stands by the river."),
        ("The <span hidden/>mill stands by the river.", "The mill stands by the river."),
        ("The <del>old</del><ins>new</ins> mill stands by the river.", "The new mill stands by the river."),
        ("The <s>old</s> new mill stands by the river.", "The new mill stands by the river."),
        ("The old<strike>er</strike>new mill stands by the river.", "The old new mill stands by the river."),
    ],
)
def test_clean_what_no_reader_sees_is_removed(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


STANDS = "The mill stands by the river."


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        (f"{STANDS}<gallery>\nFile:a.jpg|A wheel\n</gallery>{PLAIN}", f"{STANDS}\n{PLAIN}"),
        (f"{STANDS}<poem>\nThe wheel\n</poem>{PLAIN}", f"{STANDS}\n{PLAIN}"),
        (f"{STANDS}<syntaxhighlight lang=c>x</syntaxhighlight>{PLAIN}", f"{STANDS}\n{PLAIN}"),
        (f"{STANDS}<figure>{PLAIN}</figure>", f"{STANDS}\n{PLAIN}"),
        (f"{STANDS} <score>c</score> {PLAIN}", f"{STANDS} {PLAIN}"),
        (f"{STANDS} <hiero>c</hiero> {PLAIN}", f"{STANDS} {PLAIN}"),
        (f"{STANDS} <code>a[[b]]</code> {PLAIN}", f"{STANDS} {PLAIN}"),
        (f"{STANDS} <source inline>a[[b]]</source> {PLAIN}", f"{STANDS} {PLAIN}"),
        (f"{STANDS} <score>c</score>\n\n{PLAIN}", f"{STANDS}\n{PLAIN}"),
        (f"{STANDS} The tune <score>c</score> is old. {PLAIN}", f"{STANDS} {PLAIN}"),
        (f"{STANDS} <hiero>c</hiero> is a letter. {PLAIN}", f"{STANDS} {PLAIN}"),
    ],
)
def test_clean_element_without_prose_leaves_a_hole_only_within_a_sentence(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("See http://example.com/a_(b)?x=1, and all the others there.", "See, and all the others there."),
        ("See (http://example.com/a?x=1) and all the others there.", "See and all the others there."),
        ("They say (see http://a.b/c_(d)) that the mill is old.", "They say (see) that the mill is old."),
        (f"{STANDS[:-1]} http://example.com/a. {PLAIN}", f"{STANDS} {PLAIN}"),
        ("They have [http://x''Site''] for all of the others.", "They have Site for all of the others."),
        ("They have [http://x/it's a site] for all of the others.", "They have a site for all of the others."),
        ('They have [http://x/a"b" site] for all of the others.', 'They have "b" site for all of the others.'),
        ("They have [http://x/c_(d) a site] for all of the others.", "They have a site for all of the others."),
        ("They have [http://x a [new] site] for all of the others.", "They have a [new] site for all of the others."),
        ("The <ref aaaa<ref>Reed</ref> mill stands by the river.", "The mill stands by the river."),
        (f"{STANDS}\n<ref aaaa<ref>Reed</ref>\n{PLAIN}", f"{STANDS}\n{PLAIN}"),
        ("The <ref name='a<ref name=b/> mill stands by the river.", "The mill stands by the river."),
        ("The <ref>Reed<ref>Smith</ref>, 1999.</ref> mill stands by the river.", "The mill stands by the river."),
    ],
)
def test_clean_addresses_and_torn_references_leave_their_words(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    "shown",
    ["x <y and y> z", "p<q and r>s", "<a href>", "<br>", "n<sup>"],
)
@pytest.mark.parametrize(("less", "greater"), [("&lt;", "&gt;"), ("&#60;", "&#x3E;")])
def test_clean_escaped_angle_brackets_are_text(shown: str, less: str, greater: str) -> None:
    markup = shown.replace("<", less).replace(">", greater)
    assert cleaned(f"They write <tt>{markup}</tt> in this language.") == f"They write {shown} in this language."


@pytest.mark.parametrize("words", ["x <y and y> z", "x <y, and y> z", f"x <y «{PLAIN * 10}» > z"])
def test_clean_words_between_angle_brackets_are_no_tag(words: str) -> None:
    assert cleaned(f"They write that {words} here.") == f"They write that {words} here."


@pytest.mark.parametrize("before", ["{{Infobox x|a=Foo}}", "[[File:a.jpg|thumb|x]]", "<!-- x -->", "<ref>x</ref>"])
def test_clean_space_after_invisible_markup_is_not_preformatted(before: str) -> None:
    assert cleaned(f"{before} '''Foo''' is a village in the Bar district.") == "Foo is a village in the Bar district."


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        (f"<p>{PLAIN}</p><p>{PLAIN}</p>", f"{PLAIN}\n{PLAIN}"),
        (f"<blockquote>{PLAIN}</blockquote>{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{{{{quote|{PLAIN}}}}}\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{{{{quote|{PLAIN}}}}} {PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN}{{{{ordered list|a|b}}}} {PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN}\n{{|\n| a\n|}} {PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (f"{PLAIN}<ol><li>a</li></ol> {PLAIN}", f"{PLAIN}\n{PLAIN}"),
        ("* An item <div>with a block</div> that reads like a sentence of prose.", ""),
    ],
)
def test_clean_blocks_end_the_paragraph(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("lead_in", "kept"),
    [
        ("Three (Koiso, Shiratori, and Umezu) died in prison, while the others were paroled:", True),
        ("The five employers with the most employees in the state were:", False),
        ("In the far north of the country the old kingdom has eight large provinces:", False),
        ("They are as follows:", False),
        ("Total Fertility Rate, Crude Birth Rate and Infant Mortality Rate:", False),
        ("The city has the following two rivers of some length, which are", False),
    ],
)
@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_clean_sentence_before_a_list_is_kept_if_informative(lead_in: str, kept: bool, between: str) -> None:
    assert cleaned(f"{PLAIN} {lead_in}{between}* one\n* two") == (f"{PLAIN} {lead_in}" if kept else PLAIN)


LEAD_IN = "The old mill by the river has the following parts:"


@pytest.mark.parametrize(
    ("following", "kept"),
    [
        ("== Wheel ==\nThe wheel is new and stands still.", False),
        ("", False),
        ("<blockquote>The wheel is new and stands still.</blockquote>", True),
        ("{{quote|The wheel is new and stands still.}}", True),
        ("The wheel is new and stands still.", True),
        ("{{Unknown box\n|a=b\n}}\n\nThe wheel is new and stands still.", False),
        ("{| class=x\n|-\n| a\n|}\nThe wheel is new and stands still.", False),
        ("<gallery>\nFile:a.jpg|A wheel\n</gallery>\nThe wheel is new and stands still.", False),
        ("<poem>\nThe wheel\n</poem>\nThe wheel is new and stands still.", False),
    ],
)
@pytest.mark.parametrize("lists", ["drop", "sentences"])
def test_clean_lead_in_is_kept_before_what_it_leads_to(following: str, kept: bool, lists: str) -> None:
    after = ["The wheel is new and stands still."] * ("still" in following)
    expected = [f"{PLAIN} {LEAD_IN}" if kept else PLAIN, *after]
    assert clean(f"{PLAIN} {LEAD_IN}\n\n{following}", lists=lists).split("\n") == expected


ITEM = "The wheel is in the river and drives the two heavy stones."


@pytest.mark.parametrize(
    ("items", "prose"),
    [
        (f"* {ITEM}\n* a wheel\n* {PLAIN} {ITEM}", [LEAD_IN, ITEM]),  # of the last, no verb is listed
        (f"# {ITEM}\n# {ITEM}", [LEAD_IN, ITEM, ITEM]),
        (f"* {ITEM}\n** {ITEM}\n*: {ITEM}", [LEAD_IN, ITEM, ITEM, ITEM]),
        (f": {ITEM}", [LEAD_IN, ITEM]),
        (f"; Wheel : {ITEM}\n; Stone\n: {ITEM}", [LEAD_IN, ITEM, ITEM]),
        (f"* a wheel\n* {ITEM}", [ITEM]),  # which the lead-in does not lead to
        (f"<ul><li>{ITEM}</li><li>a wheel</li></ul>", [LEAD_IN, ITEM]),
        (f"{{{{div col}}}}\n* {ITEM}\n{{{{div col end}}}}", [ITEM]),
        (f"{{{{unordered list|{ITEM}|{ITEM}}}}}", []),
        (f"* [[File:a.jpg|thumb|A wheel.]] {ITEM}<ref>Reed</ref>", [LEAD_IN, ITEM]),
        (f"* {ITEM} It is {{{{odd|5}}}} feet wide.", [LEAD_IN, ITEM]),
        ("* The wheel is in the river and drives {{odd|5}} stones.", []),
        (f"* {ITEM}\n{{|\n| a\n|}}", [LEAD_IN, ITEM]),
        ("* Wheel: it is in the river and drives the two heavy stones.", []),
        ("* A. Miller: ''The Wheel of the Mill is Old'', London 1999.", []),
        (f"* {LEAD_IN}\n** {ITEM}", [ITEM]),
        (f"== References ==\n* {ITEM}", []),
    ],
)
def test_clean_items_that_are_sentences_follow_their_lead_in(items: str, prose: list[str]) -> None:
    page = f"{PLAIN}\n\n{LEAD_IN}\n{items}"
    assert clean(page, lists="sentences").split("\n") == [PLAIN, *prose]
    assert clean(page) == PLAIN


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("A note<sup>1</sup>and the isotope <sup>14</sup>C are here.", "A note and the isotope ¹⁴C are here."),
        (
            "The sum x<sup>n</sup> or (a+b)<sup>2n</sup> is in 2<sup>n−1</sup> parts.",
            "The sum x^n or (a+b)^2n is in 2^n−1 parts.",
        ),
        ("It has 10<sup>o</sup>C or 50<sup>o</sup>&nbsp;F in the old mill.", "It has 10°C or 50° F in the old mill."),
        ("The 4<sup>th</sup>, M<sup>lle</sup> n<sup>o</sup> 3 at 5<sup>h</sup>.", "The 4th, Mlle no 3 at 5h."),
        (
            "The parts a<sub>n</sub> of CO<sub>x</sub> and C<sub>n</sub>H are here.",
            "The parts a_n of COx and CnH are here.",
        ),
        ("A word with soft&shy;hyphens is one word to all.", "A word with softhyphens is one word to all."),
        ("The word (and) is short, and so is this one (or).", "The word (and) is short, and so is this one (or)."),
        ("It is short (and {{anchor|x}}) and stands in the town.", "It is short and stands in the town."),
        ("The light{{citation needed}}house stood for fifty years.", "The light house stood for fifty years."),
        ("It spells (as does the sign {{IPA|/ʃ/}}) a sound of it.", "It spells (as does the sign /ʃ/) a sound of it."),
        ("1.e4 e5 2.Nf3 Nc6 3.Bb5 a6 4.Ba4 Nf6 5.O-O Be7 6.Re1 mate.", ""),
        ("1. e4 e5 2. Nf3 Nc6 and Black has won the game of chess.", ""),
        ("1984 was a good year for all of the people there.", "1984 was a good year for all of the people there."),
        ("It stands for {{IPA|/a/}} or {{IPAc-en|lang|æ|l}} in English.", "It stands for /a/ or /æl/ in English."),
        ("A (named {{IPAc-en|eɪ}}, plural As) is the first letter.", "A (plural As) is the first letter."),
        ("Cologne ({{lang-de|Köln}}, {{audio|Köln.ogg|listen}}) is a city.", "Cologne (German: Köln) is a city."),
        ("Cologne ({{lang-de|Köln}} {{IPA-de|kœln|}}; 1 of 4) is a city.", "Cologne (German: Köln; 1 of 4) is a city."),
        (
            "Baku ({{audio|a.ogg}}; {{lang-az|Bakı}} {{IPA-az|baˈcɯ|}}) is a city.",
            "Baku (Azerbaijani: Bakı) is a city.",
        ),
        ("Rome ({{lang-la|Roma aeterna}} {{IPA-la|ˈroma|}}) is a city.", "Rome (Latin: Roma aeterna) is a city."),
        ("It measures 1000<sup>2</sup> m<sup>−1</sup> on the 4<sup>th</sup>.", "It measures 1000² m⁻¹ on the 4th."),
        ("It covers {{convert|1234567.8|km2}} of the land.", "It covers 1,234,567.8 square kilometres of the land."),
        ("A coulomb is {{val|6.24|e=18|u=e}} or so, says the book.", "A coulomb is 6.24×10¹⁸ e or so, says the book."),
        ("It covers {{convert|22|e6acre|km2}} of the land there.", "It covers 22 million acres of the land there."),
        ("It is 5.98{{e|24}} kg, as {{bibleverse|1|Kings|3:1}} says.", "It is 5.98×10²⁴ kg, as 1 Kings 3:1 says."),
        ("Il canto dell'''Iliade'' di Omero è '''lungo''' (''x'').", "Il canto dell'Iliade di Omero è lungo (x)."),
        ("Fa parte dell'''Unione Terre d'Argine'' da anni.", "Fa parte dell'Unione Terre d'Argine da anni."),
        ("The reaction is ATP --> ADP + P at this point.", "The reaction is ATP → ADP + P at this point."),
        ("One part of it ends here.--> Another one follows.", "One part of it ends here. Another one follows."),
        ("It was won by Perry Hooper, Sr.<ref>x</ref>. Then he left.", "It was won by Perry Hooper, Sr. Then he left."),
        ("He said 'just knowing.{{' \"}} And he left the room.", "He said 'just knowing.'\" And he left the room."),
    ],
)
def test_clean_typography_is_that_of_the_rendered_page(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("It is given by\n:<math>F = ma,</math>\nwhere m is the mass.", "It is given by F = ma, where m is the mass."),
        ("The force is given by\n\n<math>F = ma</math>.\n\nMasses.", "The force is given by F = ma."),
        ("It is given by\n:<math>f(x)</math>\n\nwhere x is a number.", "It is given by f(x) where x is a number."),
        ("It is given by:\n:<math>a</math>,\n:<math>b</math>\nall small.", "It is given by: a, b all small."),
        (f"{PLAIN}\n:<math>F = ma</math>\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),  # no sentence holds it
        (f"{PLAIN}\n* All of them are\n:<math>F = ma</math>\n{PLAIN}", f"{PLAIN}\n{PLAIN}"),
        (
            f"All of the laws of motion can be written as:\n:<math>a = b</math>\n:<math>c = d</math>\n{PLAIN}",
            PLAIN,
        ),
        (f"The force is given by\n:<math>F = ma</math>.\n{PLAIN}", f"The force is given by F = ma.\n{PLAIN}"),
        (f"{PLAIN}\n\n\n:<math>F = ma</math>\n\nwhere m is the mass.", PLAIN),
    ],
)
def test_clean_display_formula_joins_its_sentence(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


WHOLE = "The people of the towns around skate on the river in winter"


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        (WHOLE, WHOLE),
        (f"{PLAIN} {WHOLE}\n* one\n* two", f"{PLAIN} {WHOLE}"),
        (f"{PLAIN} {WHOLE}\n\n* one\n* two", f"{PLAIN} {WHOLE}"),
        (f"{PLAIN} {WHOLE}\n{{|\n| a\n|}}", f"{PLAIN} {WHOLE}"),
        (f"{PLAIN} {WHOLE}\n:<math>\\odd</math>", PLAIN),  # which may be part of it
        (f"{PLAIN} {WHOLE} of the\n* one\n* two", PLAIN),
        (f"{PLAIN} {WHOLE} and\n\n* one\n* two", PLAIN),
        ("Front for the Freedom of the Towns of the River Long or FFT (Anna Smith, John Smith)", ""),
        ("They skate on it", ""),
    ],
)
def test_clean_sentence_without_full_stop_is_kept_if_complete(markup: str, prose: str) -> None:
    assert cleaned(markup) == prose


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("hi", "नदी का पानी अब ठंडा है। गाँव छोटा है।"),
        ("bn", "নদীর জল এখন খুব ঠান্ডা। গ্রাম ছোট।"),
        ("ta", "ஆற்றின் நீர் இப்போது குளிராக உள்ளது।"),
        ("mr", "नदीचे पाणी आता थंड आहे। गाव लहान आहे।"),
        ("hy", "Գետի ջուրը այժմ սառն է։ Գյուղը փոքր է։"),
        ("ur", "دریا کا پانی اب ٹھنڈا ہے۔ گاؤں چھوٹا ہے۔"),
        ("am", "የወንዙ ውሃ አሁን ቀዝቃዛ ነው። መንደሩ ትንሽ ነው።"),
        ("ar", "هل ماء النهر بارد في هذا الشتاء؟"),
        ("my", "မြစ်ရေသည် ယခု အေးသည်။ ရွာသည် သေးငယ်သည်။"),
        ("km", "ទឹកទន្លេឥឡូវនេះត្រជាក់។ ភូមិតូច។"),
        ("ko", "강 물은 이제 참 차다. 이 섬은 작다. 다 안다."),
        ("zh", "这条河的水现在非常冷，村庄也很小，人们都住在桥的旁边！"),
        ("zh", "旧磨坊现在是博物馆。"),
        ("ja", "古い水車小屋は川のそばにあった。"),
        ("ko", "강 옆에 낡은 방앗간이 있었다."),
        ("bg", "„Старата мелница е красива.“"),
        ("da", "»Den gamle mølle er meget smuk.«"),
    ],
)
def test_clean_short_paragraph_of_any_script_is_kept(language: str, sentence: str) -> None:
    assert clean(sentence, make_siteinfo("wiki", language, {})) == sentence


def test_clean_label_of_a_dense_script_is_removed() -> None:
    assert clean("主な作品。", make_siteinfo("wiki", "ja", {})) == ""


@pytest.mark.parametrize(
    ("language", "markup", "prose"),
    [
        (
            "zh",
            "旧磨坊在河边。它建于1801年。{{某模板|甲}}的主人是木匠。今天它是博物馆。",
            "旧磨坊在河边。它建于1801年。今天它是博物馆。",
        ),
        (
            "ja",
            "昔は水車小屋だった。主は{{某|甲}}であった。「今は館だ。」人が訪れる。",
            "昔は水車小屋だった。「今は館だ。」人が訪れる。",
        ),
        ("ja", "この燕（{{某|つばめ}}）は春に来る鳥である。", "この燕は春に来る鳥である。"),
        (
            "ka",
            "წისქვილი მდინარესთან იდგა. აქ {{რამე|ა}} იყო. ახლა იქ მუზეუმია.",
            "წისქვილი მდინარესთან იდგა. ახლა იქ მუზეუმია.",
        ),
        (
            "ka",
            "წისქვილი მდინარესთან იდგა.\n* სია\nახლა იქ დიდი მუზეუმი დგას.",
            "წისქვილი მდინარესთან იდგა.\nახლა იქ დიდი მუზეუმი დგას.",
        ),
        (
            "ka",
            "წისქვილი მდინარესთან იდგა.{{რამე|ა}} ახლა იქ მუზეუმია.",
            "წისქვილი მდინარესთან იდგა. ახლა იქ მუზეუმია.",
        ),
        (
            "cs",
            "Mlýn je starý. Tam {{něco}} žil. „Dnes je tam muzeum.“ Je otevřeno.",
            "Mlýn je starý. „Dnes je tam muzeum.“ Je otevřeno.",
        ),
    ],
)
def test_clean_gap_costs_only_its_sentence_in_any_script(language: str, markup: str, prose: str) -> None:
    assert clean(markup, make_siteinfo("wiki", language, {})) == prose


@pytest.mark.parametrize(
    ("language", "prose"),
    [
        ("ru", "Старая мельница стоит у реки. Она была построена давно."),
        ("ru", "Старая мельница стоит у реки. «Она была построена давно»."),
        ("el", "Ο παλιός μύλος είναι στο ποτάμι. Είναι πολύ όμορφος."),
        ("zh", "旧磨坊在河边的村庄里。它建于一八〇一年。"),
        ("hi", "पुरानी चक्की नदी के पास खड़ी है। वह बहुत सुंदर है।"),
        ("ur", "پرانی چکی دریا کے پاس کھڑی ہے۔ وہ بہت خوبصورت ہے۔"),
        ("hy", "Հին ջրաղացը կանգնած է գետի մոտ։ Այն շատ գեղեցիկ է։"),
        ("am", "አሮጌው ወፍጮ በወንዙ አጠገብ ቆሟል። በጣም ቆንጆ ነው።"),
        ("my", "စက်ဟောင်းသည် မြစ်နားတွင် ရှိသည်။ အလွန်လှသည်။"),
    ],
)
def test_clean_two_stops_around_a_reference_are_one(language: str, prose: str) -> None:
    for stop in ".。।۔։።။":
        torn = prose.replace(stop, f"{stop}<ref>x</ref>{stop}")
        assert clean(torn, make_siteinfo("wiki", language, {})) == prose


@pytest.mark.parametrize(
    "text", ["Er ging .. und die Mühle stand still.", "老磨坊在河边的村庄里。。。它建于很久以前！！真的？？"]
)
def test_clean_other_doubled_points_stay(text: str) -> None:
    assert clean(text, make_siteinfo("wiki", "de", {})) == text


@pytest.mark.parametrize(
    ("open_end", "prose"),
    [
        (f"{STANDS} Its old wheel of the", STANDS),
        (f"{STANDS} Its old wheel", STANDS),
        (f"{STANDS} It is old.\nIts old wheel", f"{STANDS} It is old."),
        ("A. Miller. London", ""),
        ("the old mill stands by the river. Its old wheel", ""),
    ],
)
def test_clean_open_last_sentence_goes_alone(open_end: str, prose: str) -> None:
    assert cleaned(open_end) == prose


def test_clean_french_spaces_before_punctuation_are_kept() -> None:
    text = "Il y a deux fontaines : la grande ; la petite ! Et « la belle » ? Oui{{,}} , une autre{{,}} ."
    kept = "Il y a deux fontaines : la grande ; la petite ! Et « la belle » ? Oui, une autre."
    assert clean(text, make_siteinfo("frwiki", "fr", {})) == kept


def test_clean_dropped_sentence_ends_by_french_rules():
    text = "M. Dupont vit {{unknown}} le roi. La cour était assise dans la grande salle."
    assert clean(text, make_siteinfo("frwiki", "fr", {})) == "La cour était assise dans la grande salle."


def test_clean_pagename_is_the_title() -> None:
    text = "They say that {{PAGENAME}} is a village in the north."
    assert clean(text, title=r"Mill (\1)") == r"They say that Mill (\1) is a village in the north."
    assert clean(text) == ""


def test_clean_paragraph_after_dropped_list_is_judged_by_its_punctuation() -> None:
    lost = "\n* one\nand x is the mass;\n\n"
    assert cleaned(f"{PLAIN}{lost}the river Long runs north.") == f"{PLAIN}\nthe river Long runs north."
    assert cleaned(f"{PLAIN}{lost.replace(';', '')}the river Long runs north.") == PLAIN


@pytest.mark.parametrize(
    ("language", "name"), [("it", "ClimaAnnuale"), ("de", "Klimatabelle"), ("es", "Clima"), ("fr", "Climat")]
)
def test_clean_climate_table_is_removed_with_its_label(language: str, name: str) -> None:
    table = f"'''Medie mensili della stazione'''{{{{{name}\n| tempmax01 = 3\n}}}}"
    page = f"{PLAIN}\n\n{table}\nL'area urbana è calda.\n{PLAIN}"
    assert clean(page, make_siteinfo("wiki", language, {})) == f"{PLAIN}\nL'area urbana è calda. {PLAIN}"


def test_clean_sentences_with_a_gap_are_counted() -> None:
    dropped: Counter[str] = Counter()
    clean(rf"{PLAIN} Here <math>\odd12</math> is small. So is <math>\odd x</math> too.", dropped=dropped)
    assert dropped == {"gap": 2}


def test_clean_sections_without_prose_are_removed() -> None:
    text = f"{PLAIN}\n== References ==\nA source that ends with a stop.\n=== Books ===\nAnother one of those.\n"
    text += "== Later years ==\nHe went home and wrote his memoirs.\n=== See also ===\nOther people like him are known."
    dropped: Counter[str] = Counter()
    assert clean(text, dropped=dropped) == f"{PLAIN}\nHe went home and wrote his memoirs."
    assert dropped["section"] == 2


def test_clean_italian_namespaces_and_headings() -> None:
    italian = make_siteinfo("itwiki", "it", {6: "File", 14: "Categoria", -1: "Speciale"})
    text = f"[[Immagine:a.jpg|thumb|Una didascalia che finisce con un punto.]]\n\n{PLAIN}\n\n[[Categoria:Fiumi]]"
    text += "\n== Voci correlate ==\nUn'altra voce che finisce con un punto."
    assert clean(text, italian) == PLAIN


def test_clean_unclosed_markup_drops_one_line() -> None:
    for opener in ("{{Infobox", "{| class=x", "[[File:a.jpg|thumb", "<ref name=x", "<gallery>", "'''"):
        assert clean(f"{PLAIN}\n\n{opener}\n\n{PLAIN}\n\n{PLAIN}").count(PLAIN) >= 2, opener


def test_clean_unclosed_template_loses_its_line_and_an_unclosed_link_nothing() -> None:
    assert clean(f"{PLAIN} {{{{Infobox|name=It is no prose.\n{PLAIN}") == f"{PLAIN} {PLAIN}"
    assert (
        clean(f"{PLAIN} They know [[the mill on the hill.\n{PLAIN}")
        == f"{PLAIN} They know the mill on the hill. {PLAIN}"
    )


MARKUP = ("{{", "}}", "[[", "]]", "{|", "|}", "==", "''", "<!--", "<ref", *map(chr, range(0xE000, 0xE008)))
MARKS = [
    "{{", "}}", "{{{", "}}}", "[[", "]]", "{|", "|}", "\n{|", "\n|-", "\n|", "|", "==", "\n== ", "==\n", "\n* ", "\n:",
    "\n#", "\n;", "\n ", "\n\n", "\n", "<ref>", "</ref>", "<ref name=a/>", "<ref ", "<!--", "-->", "'''", "''", "'",
    "[http://a.b ", "[//a ", "https://a.b", "]", "[", "<nowiki>", "</nowiki>", "<nowiki/>", "<math>", "</math>",
    "<code>", "</code>", "<pre>", "<br>", "<br/>", "<div ", ">", "<span>", "</span>", "<li>", "</ol>", "<sub>",
    "</sub>", "<sup>2</sup>", "<gallery>", "</gallery>", "<REF>", "[[File:a.jpg|thumb|", "[[Category:", "[[de:",
    "[[:Category:", "{{convert|5|km", "{{lang|x|", "{{IPA|/a/", "{{IPAc-en|a", "{{as of|", "{{frac|", "{{quote|",
    "{{nowrap|", "{{ordered list|", "{{val|", "{{!}}", "{{=}}", "{{'}}", "{{coord|",
    "{{odd|", "{{odd}}", "{{cn}}", "{{reign|", "{{sclass|", "<p>", "</blockquote>", "\ue003", "\ue004",
    "\ue005", "\ue006", "\ue007",
    '<span style="display:none">', "</span>", "<s>", "</s>", "<i hidden>", "</i>", "<sup>n</sup>", "x<sub>n</sub>",
    "。。", "https://a.b/c_(d)", "[http://a'b [c]", "<ref a<ref>",
    "{{chem|", "{{e|", "<math>\\frac</math>", "\n:<math>a</math>\n", "l'''a''",
    "__TOC__", "(", ")", ",", ";", ":", "=", "{", "}", "<", ">",
    "*", "#", '""', '"', ".", " ", "  ", "\u00a0", "\t", "\r", "~", "\ue000", "\ue001", "\ue002", "İ", "$", "!", "–",
]  # fmt: skip
ESCAPED = [
    "&lt;ref&gt;", "&lt;!--", "&#91;&#91;", "&#93;", "&#123;&#123;", "&#125;&#125;", "&#123;|", "&#61;&#61;", "&lt;",
    "&amp;lt;ref", "&nbsp;", "&amp;", "&#39;&#39;", "&#10;", "&#x7b;", "&#124;", "&lt;/ref", "&",
]  # fmt: skip
WORDS = [
    "A sentence of more than twenty-five characters stands here.", "and meets the sea", "As follows:", "Mr. J. Smith",
    "word", "a", "日本語の文章です。", "(born 1900)", "1,234", "U.S.", "?",
]  # fmt: skip
SURROUNDINGS = [("", ""), (f"{PLAIN}\n\n", f"\n\n{PLAIN}"), (f"{PLAIN} ", f" {PLAIN}")]


def pages_of(*kinds: list[str]) -> st.SearchStrategy[str]:
    """Pages of such fragments and a little other text, alone or amid prose."""
    other = st.characters(exclude_characters="&", exclude_categories=["Cs"])  # a decoded dump holds no lone surrogates
    fragments = st.one_of(*map(st.sampled_from, kinds), st.text(other, max_size=6))
    body = st.lists(fragments, max_size=40).map("".join)
    return st.builds(lambda around, text: around[0] + text + around[1], st.sampled_from(SURROUNDINGS), body)


SETTINGS = settings(max_examples=500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(pages_of(MARKS, WORDS, ESCAPED))
def test_clean_any_page_leaves_no_markup_and_does_not_grow(page: str) -> None:
    result = clean(page)
    assert len(result) <= len(page)
    assert not any(mark in result.lower() for mark in MARKUP)
    assert all(line == line.strip() and line for line in result.split("\n")) or not result
    assert result.splitlines() == (result.split("\n") if result else [])


@SETTINGS
@given(pages_of(MARKS, WORDS))
def test_clean_own_output_is_unchanged(page: str) -> None:
    result = clean(page)
    assert clean(result.replace("\n", "\n\n")) == result  # in wikitext a blank line ends a paragraph


PAGES, SHORTER = pages(), pages(RUN // TIMES)


@pytest.mark.parametrize("name", PAGES)
def test_clean_hostile_page_takes_linear_time(name: str) -> None:
    assert_linear(clean, f"{PLAIN}\n\n{SHORTER[name]}\n\n{PLAIN}", f"{PLAIN}\n\n{PAGES[name]}\n\n{PLAIN}")


@pytest.mark.parametrize(
    "page",
    ["{{convert|5|" + "e3" * 2000 + "|m}}", "It is given by\n\ue005 \ue005\nwhere x goes on."],
    ids=["overflowing number", "private characters"],
)
def test_clean_hostile_paragraph_keeps_the_other_paragraphs(page: str) -> None:
    assert PLAIN in clean(f"{page}\n\n{PLAIN}")
