"""Templates: shown as readers see them if known; unknown ones drop their sentence and are counted."""

from __future__ import annotations

from collections import Counter

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_src.text.wikipedia.siteinfo import make_siteinfo
from pipeline_src.text.wikipedia.templates import TABLES, languages, read_names, template_table
from pipeline_src.text.wikipedia.wikitext import clean

PLAIN = "The river runs north through two counties before it meets the sea."
LAST = "Nobody knows how old the bridge is."


def shown(template: str, language: str = "en") -> str:
    """What ``template`` shows between two words; '' where its sentence goes."""
    text = clean(f"They say {template} is here, amid a sentence of prose.", make_siteinfo("wiki", language, {}))
    return text.removeprefix("They say ").removesuffix(" is here, amid a sentence of prose.")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{langx|la|colonia}}", "Latin: colonia"),
        ("{{lang-la|colonia}} {{lang-grc2|word}} {{lang-xx|word}}", "Latin: colonia Ancient Greek: word word"),
        ("{{sclass|Town|cruiser|1}}", "Town-class cruiser"),
        ("{{sclass|Town|cruiser|2}}", "Town class"),
        ("{{ship|Japanese aircraft carrier|Akagi}}", "Japanese aircraft carrier Akagi"),
        ("{{HMS|Ark Royal|91}}", "HMS Ark Royal (91)"),
        ("{{USS|Texas|BB-35|6}}", "USS Texas"),
        ("{{USS|Texas|BB-35|2}}", "Texas"),
        ("{{harvtxt|Smith|2000|p=12}}", "Smith (2000, p. 12)"),
        ("{{harvtxt|A|B|C|D|2000}}", "A et al. (2000)"),
        ("{{harvtxt|A|B|C|2000}}", "A, B & C (2000)"),
        ("{{harvnb|A|B|2000}}", "A & B 2000"),
        ("{{gloss|book}}", "‘book’"),
        ("{{start date|1999|03}}", "March 1999"),
        ("{{start date|1999|3|5}}", "March 5, 1999"),
        ("{{start date|1999|3|5|df=y}}", "5 March 1999"),
        ("{{F1|1994}}", "1994"),
        ("{{INR}} 500", "₹ 500"),
        ("{{US$|5 million}}", "US$5 million"),
        ("{{1/2}}", "1/2"),
        ("{{emdash}}", "—"),
        ("1990{{endash}}1995", "1990–1995"),
        ("William (r. {{reign|1066|1087}})", "William (r. 1066–1087)"),
        ("Jr. r. {{reign|1066|1087}}", "Jr. r. 1066–1087"),
        ("etc. {{circa|1850}}", "etc. c. 1850"),
        ("5 c. c. of it", "5 c. c. of it"),
        ("William ({{reign|1066|1087}})", "William (r. 1066–1087)"),
        ("William ({{reign|1066|1087|1100}})", "William (r. 1066–1087)"),
        ("{{gaps|12|345|678}}", "12 345 678"),
        ("{{as of|2011|February|lc=y}}", "as of February 2011"),
        ("{{as of|2011|2|5|df=us|lc=y}}", "as of February 5, 2011"),
        ("{{convert|56|in}}", "56 inches"),
        ("{{convert|5<nowiki/>|km}}", "5 kilometres"),
        ("{{convert|1{{shy}}0|km}}", "10 kilometres"),
        ("{{e|a{{=}}b}}", "×10a=b"),
        ("{{convert|56|in|abbr=on}}", "56 in"),
        ("{{cvt|1|km|mi}}", "1 km"),
        ("{{convert|1|km|mi}}", "1 kilometre"),
        ("{{convert|1|km|mi|sp=us}}", "1 kilometer"),
        ("{{convert|5|x|7|m}}", "5 by 7 metres"),
        ("{{convert|5|x|7|m|abbr=on}}", "5 × 7 m"),
        ("{{convert|5|km|mi|adj=on}}", "5-kilometre"),
        ("{{convert|1+1/2|mi}}", "1 1/2 miles"),
        ("{{convert|2.3|Moilbbl/d}}", "2.3 million barrels per day"),
        ("{{nowrap|a {{=}} b}}", "a = b"),
        ("{{nowrap|1=a = b}}", "a = b"),
        ("{{lang|fr|a{{!}}b}}", "a|b"),
        ("{{formatnum:1234567}}", "1,234,567"),
        ("10{{sup|6}}", "10⁶"),
        ("{{nihongo|Tokyo|東京|Tōkyō}}", "Tokyo (東京, Tōkyō)"),
        ("{{OldStyleDate|22 February|1732|11 February}}", "22 February [O.S. 11 February] 1732"),
        ("{{ordinal|22}}", "22nd"),
        ("{{sic|teh}}", "teh [sic]"),
        ("{{sic|mis|take}}", "mistake [sic]"),
        ("{{sic|mis|take|hide=y}}", "mistake"),
        ("{{Template:Nowrap|<!-- x -->a}}", "a"),
        ("{{coord|13|19|N|169|9|W|type:event|name=Splashdown}}", "13°19′N 169°9′W"),
        ("{{coord|47|16|16.5|N|9|31|51|E|display=inline,title}}", "47°16′16.5″N 9°31′51″E"),
        ("{{coord|46.8345|-10.5162|type:river}}", "46.8345°N 10.5162°W"),
        ("{{coord|12|N|70|W|}}", "12°N 70°W"),
        ("{{currency|5000|USD}}", "US$5,000"),
        ("''dell{{'}}''arte, ''Iliad''{{'}}s and {{'}}x{{'}}", "dell'arte, Iliad's and 'x'"),
        ("{{Post-nominals|country=GBR|size=85%|KBE|FRS}}", "KBE, FRS"),
        ("{{convert|5|PD/km2}}", "5 inhabitants per square kilometre"),
        ("{{convert|5|yd3|abbr=on}}", "5 cu yd"),
        ("{{formatnum:-1234567.5}}", "-1,234,567.5"),
        ("{{formatnum:1234567|R}}", "1234567"),
        ("{{convert|750|km²|abbr=on}}", "750 km²"),
        ("{{convert|5|m³}}", "5 cubic metres"),
        ("{{citation needed span|text=the mill|date=May 2011}}", "the mill"),
        ("{{w|mill|mills}}", "mills"),
        ("{{ill|Old mill|de|Alte Mühle}} {{ill|Old mill|de|Alte Mühle|lt=mill}}", "Old mill mill"),
        ("{{ill|de|Old mill|Old mill|Alte Mühle}}", "Old mill"),  # as written before 2018
        ("{{Vorlage:Lang|la|colonia}} {{Bản mẫu:1/2|x}}", "colonia 1/2 x"),
        ("{{nihongo|||tsubame|swallow}}", "tsubame (swallow)"),
        ("{{nihongo||燕|tsubame|extra=swallow}}", "tsubame (燕, swallow)"),
        ("{{nihongo|Swallow||tsubame}} {{nihongo||燕}}", "Swallow (tsubame) 燕"),
        ("{{nihongo3|Swallow|燕|tsubame}} {{nihongo3|Swallow||tsubame}}", "tsubame (燕, Swallow) tsubame (Swallow)"),
        ("{{zh|s=磨坊|p=mòfáng|l=mill}}", "simplified Chinese: 磨坊; pinyin: mòfáng; lit. mill"),
        ("{{zh|labels=no|s=磨坊|p=mòfáng}} {{zh|磨坊}}", "磨坊; mòfáng 磨坊"),
        ("{{val|1.67|(33)|e=-27|u=kg}}", "1.67(33)×10⁻²⁷ kg"),
        ("{{val|1234.5(67)|fmt=commas}}", "1,234.5(67)"),
        ("{{val|5|2|e=3}}", "(5±2)×10³"),
        ("{{death date and age|1999|3|5|1920|4|1}}", "March 5, 1999 (aged 78)"),
        ("{{death date and age|df=y|1999|4|1|1920|4|1}}", "1 April 1999 (aged 79)"),
        ("5 {{km2}}", "5 km²"),
        ("{{flag|法国}}", "法国"),
        ("{{ordered pair|3|4}} {{ordered pair|3|}}", "(3, 4) (3)"),
        ("{{nowrap|a [[b}} c", "a b c"),
        ("{{nowrap|a [[b [[c}} d", "a b c d"),
    ],
)
def test_clean_known_template_is_shown(template: str, words: str) -> None:
    assert shown(template) == words


@pytest.mark.parametrize(
    "template",
    [
        "{{odd}}",
        "{{odd|some words}}",
        "{{nowrap|{{odd}} km}}",
        "{{convert|{{odd}}|km}}",
        "{{IPA|a{{odd}}}}",
        "{{convert|5|oddunit}}",
        "{{convert|odd|km}}",
        "{{coord|odd}}",
        "{{coord|12|N}}",
        "{{coord|N|W}}",
        "{{coord|1|2|3|4|N|5|E}}",
        "{{as of|soon}} {{odd}}",
        "{{start date|1999|odd}}",
        "{{sclass|Town|cruiser|9}}",
        "{{#if:x|y}}",
        "{{PAGENAME}}",
        "{{{1|odd}}}",
        "light{{odd}}house",
        "light{{nowrap}}house",
        "{{ordered pair|3}}",
        "{{odd\n|a=b\n}}",
        "{{Vorlage:Odd|a}}",
        "{{#odd:lang|a}}",
        "{{:lang|a}}",
        "{{death date and age|1999|3|5}}",
        "{{death date and age|1999|3|5|May|1920}}",
        "{{nihongo}}",
        "{{ill|de}}",
        "{{zh}}",
        "{{zh|odd=磨坊}}",
        "{{flag|FR}}",
        "{{km2|5}}",  # its number is shown too, who knows how
    ],
)
def test_clean_unknown_template_drops_its_sentence(template: str) -> None:
    text = f"{PLAIN} They say {template} is here, amid a sentence of prose. {LAST}"
    assert clean(text) == f"{PLAIN} {LAST}"


@pytest.mark.parametrize(
    ("text", "kept", "unknown"),
    [
        ("It is {{odd}} here. It is {{Odd|x}} there, and {{other_one}} too.", "", {"odd": 2, "other one": 1}),
        (f"{PLAIN[:-1]} (it is {{{{odd}}}} here). {LAST}", f"{PLAIN} {LAST}", {"odd": 1}),
        (f"{PLAIN}{{{{odd}}}} {LAST}", f"{PLAIN} {LAST}", {}),  # between two sentences nothing is missing from either
        (f"{PLAIN}{{{{odd}}}}{{{{other}}}}\n\n{LAST}", f"{PLAIN}\n{LAST}", {}),
        (f"{{{{odd|a=b}}}}\n{PLAIN}\n\n{{{{odd}}}}\n\n{LAST}", f"{PLAIN}\n{LAST}", {}),  # boxes
        (f"{{{{odd\n|a=b\n}}}} {PLAIN}", PLAIN, {}),
        (f"* A list line with {{{{odd}}}} in it.\n\n{PLAIN}", PLAIN, {}),
        (f"{{{{cite web|title={{{{odd}}}}}}}} {PLAIN}", PLAIN, {}),
        # known, but without the words that they show there
        ("It is {{convert|odd|km}} off. It has {{#if:x|y}} people.", "", {"convert": 1, "#if:": 1}),
    ],
)
def test_clean_unknown_templates_are_counted_by_sentences(text: str, kept: str, unknown: dict[str, int]) -> None:
    counted: Counter[str] = Counter()
    assert clean(text, unknown=counted) == kept
    assert counted == unknown


@pytest.mark.parametrize(
    "name", ["citation needed", "sfn", "efn", "rp", "anchor", "Infobox x", "Use dmy dates", "x-stub"]
)
def test_clean_template_without_text_is_removed(name: str) -> None:
    text = clean(f"They say{{{{{name}|x|date=May 2011}}}} it is here, amid a sentence.")
    assert text == "They say it is here, amid a sentence."


@pytest.mark.parametrize(
    ("language", "template", "words"),
    [
        ("fr", "né le {{Date de naissance|11|novembre|1866}} à", "né le 11 novembre 1866 à"),
        ("fr", "le {{date-|14|mai|1995}} ou {{date||juillet|1995}}", "le 14 mai 1995 ou juillet 1995"),
        ("fr", "{{date|1|5|1995|en sport}} ou {{date-|14 mai}}", "1er mai 1995 ou 14 mai"),
        ("fr", "{{date|1995-05-14}} ou {{date|||1995}}", "14 mai 1995 ou 1995"),
        ("fr", "{{date|14|mai|vers 1995}}", ""),
        ("fr", "{{date|14}}", ""),
        ("fr", "{{start date|1999|3|5}}", "5 mars 1999"),
        ("fr", "du {{s|XX}} et du {{XXe siècle}}", "du XXe siècle et du XXe siècle"),
        ("fr", "{{s-|I|er}}, {{-s-|II|e}} et {{s mini|V}}", "Ier siècle, IIe siècle av. J.-C. et Ve"),
        ("fr", "{{sp-|XV|e|au|XVI|e}} et {{s2|II|e|III|e}}", "XVe au XVIe siècle et IIe et IIIe siècles"),
        ("fr", "la {{29e|division}} de Louis {{XIV}}", "la 29e division de Louis XIV"),
        ("fr", "un{{,}} deux {{latin|ab ovo}} {{etc.}} {{nobr|4,4|millions}}", "un deux ab ovo etc. 4,4 millions"),
        ("fr", "{{unité|12.50|km|2}} ou {{unité|3|km||h|-1}}", "12,50 km² ou 3 km h⁻¹"),
        ("fr", "{{unité|1.5|e=6|km}} ou {{unité|4 000 à 5000,5|km}}", "1,5×10⁶ km ou 4 000 à 5 000,5 km"),
        ("fr", "{{unité|4|à|5.5|km|2}}", "4 à 5,5 km²"),
        ("fr", "XX{{e}} et 10{{e|6}} ou 5{{x10|6}}", "XXe et 10⁶ ou 5×10⁶"),
        ("fr", "{{unité|5|km|odd}}", ""),
        ("fr", "{{formatnum:1234567.5}} et {{formatnum:1234}}", "1 234 567,5 et 1 234"),
        ("de", "{{formatnum:1234567.5}} auf {{Höhe|2962|DE-NHN|link=1}}", "1.234.567,5 auf 2962 m ü. NHN"),
        ("pl", "{{formatnum:12345}} i {{formatnum:1234}}", "12 345 i 1234"),
        ("sv", "{{formatnum:1234567.5}} och {{convert|1234|to|1500|km|mi}}", "1 234 567,5 och 1 234–1 500 km"),
        ("pt", "{{fmtn|12345|km}} em {{dtlink|1|5|1995}}", "12 345 km em 1 de maio de 1995"),
        ("es", "{{fecha|14|5|1995}} y 5{{esd}}km", "14 de mayo de 1995 y 5 km"),
        ("ru", "{{дата|14|5|1995}} и {{дата||5|1995}}", "14 мая 1995 и май 1995"),
        ("als", "{{start date|1999|3|5}}", ""),  # in no words of another language
        ("de", "{{about|a|b}}hier", "hier"),
        ("fr", "{{unité|5|km}} et {{nobr|a b}}", "5 km et a b"),
        ("it", "{{formatnum:365.25}} e {{tutto attaccato|a b}}", "365,25 e a b"),
        ("it", "vero{{citazione necessaria}}, {{citazione necessaria|certo}}", "vero, certo"),
        (
            "it",
            "{{nihongo|''dōga''|動画||film}} e {{nihongo|''utsushie''|写し絵}}",
            "dōga (動画 film) e utsushie (写し絵)",
        ),
        ("it", "{{Exp|1,9|19}} anni a {{M|61.000||km/h}}", "1,9×10¹⁹ anni a 61.000 km/h"),
        ("it", "{{M|1|k|m}}, {{m|1,12|e=-3|-|Pa}} e {{M|5|u=MHz}}", "1 km, 1,12×10⁻³ Pa e 5 MHz"),
        ("it", "in {{Cita|Rossi2005|p. 7|Rossi e Bianchi 2005|harv=s}}", "in Rossi e Bianchi 2005, p. 7"),
        ("it", "a {{exp|7}} e {{M}}", ""),
        ("it", "una{{p|punto di vista}} voce{{link audio|a.ogg|ascolta}}", "una voce"),
        ("de", "{{enS|themes}}", "englisch themes"),
        ("de", "bei {{Coordinate|text=DMS|NS=47/16/16/N|EW=9/31/51/E|type=landmark}}", "bei 47°16′16″N 9°31′51″E"),
        ("de", "ein Ort{{Coordinate|NS=47/16/16/N|EW=9/31/51/E}}", "ein Ort"),
        ("es", "en {{coord|12|19|N|70|1|O}}", "en 12°19′N 70°1′O"),
        ("fr", "à {{coord|48|52|26|N|2|23|7|E}}", "à 48°52′26″N 2°23′7″E"),
        ("ru", "{{lang-en|word}}", "англ. word"),
        ("es", "{{siglo|XX||s}} y {{siglo|V|a}}", "siglo XX y V a. C."),
        ("pl", "{{łac.|colonia}}", "łac. colonia"),
        ("pt-br", "{{séc|XX}}", "século XX"),
        # doubts of editors show the words in doubt
        (
            "fr",
            "{{référence insuffisante|une turbine}}, que {{qui|certains}}{{quand}} datent",
            "une turbine, que certains datent",
        ),
        ("pl", "{{fakt|młyn|data=2010-05}} {{kiedy?|dawno}}{{kto?}}", "młyn dawno"),
        ("nl", "{{bron?|de molen|2010|05|01}} {{wanneer?|ooit}}", "de molen ooit"),
        ("pt", "{{carece de fontes|o moinho|data=maio}}{{quem?}}", "o moinho"),
        ("es", "{{cita requerida|el molino}}{{cuándo}}", "el molino"),
        ("sk", "{{bez citácie|mlyn}}", "mlyn"),
        ("cs", "{{fakt/dne|20100101120000|mlýn}} {{kdo/dne|20100101120000}}", "mlýn"),
        ("ja", "{{要出典範囲|古い水車|date=2010年}}{{要出典|date=2010年}}", "古い水車"),
        # units with their number
        ("fr", "{{euro|32984}} ou 5 {{euro}}", "32 984 € ou 5 €"),
        ("de", "{{Höhe|28.1|DE-NHN}} und {{EUR|1234.5}}", "28,1 m ü. NHN und 1.234,5 €"),
        ("fr", "{{hab.|5000}}", ""),
        # the most frequent of other languages
        ("cs", "{{vjazyce2|la|mola}} a {{cizojazyčně|la|mola}}", "latinsky mola a mola"),
        ("cs", "{{vjazyce2|xx|mola}}", "mola"),
        ("es", "{{zh|s=磨坊}}", ""),  # in no words of another language
        ("es", "{{lang-zh|磨坊}} {{zh|labels=no|s=磨}}", "磨坊 磨"),
        ("ja", "{{仮リンク|水車|en|Water mill}}と{{仮リンク|水車|en|Water mill|label=水}}", "水車と水"),
        (
            "ja",
            "{{読み仮名|水車|すいしゃ}}、{{読み仮名_ruby不使用|水|みず|自然}}",
            "水車（すいしゃ）、水（みず、自然）",
        ),
        ("zh", "{{link-en|水車|Mill}}、{{le|水車|Mill|磨坊}}、{{tsl|en|Mill||磨}}", "水車、磨坊、磨"),
        (
            "zh",
            "{{bd|1891年|12月17日|1962年|2月24日|catIdx=胡}}{{BD|1973年|4月16日||}}",
            "1891年12月17日－1962年2月24日（1973年4月16日－）",
        ),
        ("ar", "{{ألمانية|Mühle}} {{وإو|عر=طاحونة|تر=Mill|لغ=en}}", "(بالألمانية: Mühle) طاحونة"),
        (
            "ja",
            "{{la|mola}}{{en}}は水車{{enlink|Mill|水車}}、{{ilq|回る}}と{{ピン音|shuǐ}}",
            "molaは水車、「回る」と拼音: shuǐ",
        ),
        ("zh", "水車{{nsRefC|group=註|name=a|很老}}和磨坊{{notefoot|a}}", "水車和磨坊"),
        ("fr", "{{en langue|la|mola}}", "mola"),
        ("ro", "{{conversie|891.85|km2|sqmi|abbr=on}}", "891,85 km²"),
        (
            "ru",
            "{{СС2|19|ноября|1711|8}} и {{СС|2|ноября|1721|22 октября}}",
            "8 (19) ноября 1711 и 22 октября (2 ноября) 1721",
        ),
        ("ru", "{{OldStyleDate|7|мая|1755 год|26|апреля}}а", "26 апреля (7 мая) 1755 года"),
        ("ru", "{{СС3|24.1.1755}} и {{СС3|1.3.1900}}", "24 января (4 февраля) 1755 и 1 (14) марта 1900"),
        ("ru", "{{сс3|25.12.1900}}", "25 декабря 1900 (7 января 1901)"),
        ("ru", "{{сс3|31.2.1900}} и {{сс|2|ноября}}", ""),
        ("ru", "{{сс3|1.1.0001}} и {{сс3|31.12.9999}}", ""),
        ("ru", "{{сс2|||1711|8}}", ""),
        ("ru", "«Вода»{{начало цитаты}}«Река»{{конец цитаты|источник=Мельник}}{{переход|#Река|1}}", "«Вода»«Река»"),
        ("ru", "мельница {{audio|a.ogg|слушать}} и {{audio|a.ogg|мельница}}{{audio|a.ogg}}", "мельница и мельница"),
        ("ko", "{{llang|la|mola}}{{출처|날짜=2010}}", "라틴어: mola"),
        ("frp", "un{{,}} doux", "un doux"),
        ("xx", "{{nowrap|a b}}", "a b"),
        ("fr", "Meunier {{prononciation|LL-Q150 fra-Meunier.wav}}{{IPA|a.ogg }}", "Meunier"),
        ("fr", "{{chose inconnue}}", ""),
        ("xx", "{{odd}}", ""),
    ],
)
def test_clean_template_of_another_language_is_shown(language: str, template: str, words: str) -> None:
    assert shown(template, language) == words


# A red link shows its label by whatever name the argument has, and an anchor its words.
@pytest.mark.parametrize(
    ("language", "template", "words"),
    [
        ("ru", "{{нп5|Миллер, Джон|Джоном Миллером|en|John Miller}}", "Джоном Миллером"),
        ("ru", "{{не переведено|надо=мельница|есть=:en:mill}} {{нп3|мельница||en|mill}}", "мельница мельница"),
        ("uk", "{{нп|Млин|млин|en|Mill}} {{не перекладено|треба=Млин|текст=млином}}", "млин млином"),
        ("be", "{{Не перакладзена 3|Млын|млына|en|Mill}}", "млына"),
        ("fr", "{{lien|fr=Le Moulin|texte=le moulin}} {{lien|Le Moulin|lang=en|trad=Mill}}", "le moulin Le Moulin"),
        ("fr", "({{langue|en|texte=The Mill}})", "(The Mill)"),
        ("pl", "{{link-interwiki|Jan|tekst=Jana}} {{link-interwiki|pl=Jan|język=en}}", "Jana Jan"),
        ("pt", "{{ilc|Moinho|en|Mill|lt=moinho}}", "moinho"),
        ("es", "{{enlace-interwiki|en|Mill|texto=molino}}", "molino"),
        ("ja", "{{仮リンク|水車|en|Mill|label=水}}", "水"),
        (
            "zh",
            "{{link-en|水車|Mill|磨坊}} {{internal link helper/en|水車|Mill}} {{tsl|en|Mill|水車}}",
            "磨坊 水車 水車",
        ),
        ("he", "{{קישור שפה|אנגלית|Mill|טחנה}} {{קישור שפה|אנגלית|Mill|טחנה|הטחנה|מירכאות=כן}}", 'טחנה "הטחנה"'),
        ("tr", "{{ill|Değirmen|en|Mill|lt=değirmen}}", "değirmen"),
        ("en", "{{visible anchor|second law|alt}} {{vanchor|law|text=third law}}", "second law third law"),
        ("en", "{{interlanguage link|de|Mill|display=mill}} {{red link|Old mill|lt=mill}}", "mill mill"),
    ],
)
def test_clean_red_link_shows_its_label(language: str, template: str, words: str) -> None:
    assert shown(template, language) == words


# A word of another language has the label that its wiki writes before it.
@pytest.mark.parametrize(
    ("language", "template", "words"),
    [
        ("en", "({{lang-fr|moulin}}; {{langx|de|Mühle}})", "(French: moulin; German: Mühle)"),
        ("en", "{{lang|fr|moulin}} {{lang-fr}}", ""),
        ("es", "{{lang-fr|moulin}}", "en francés: moulin"),
        ("pt", "{{lang-fr|moulin}}", "em francês: moulin"),
        ("sv", "{{lang-fr|moulin}}", "franska: moulin"),
        ("tr", "{{lang-fr|moulin}}", "Fransızca: moulin"),
        ("uk", "{{lang-fr|moulin}}", "фр. moulin"),
        ("fi", "{{k-fr|moulin}}", "ransk. moulin"),
        ("fa", "{{به انگلیسی|mill}} {{lang-fr|moulin}}", "(به انگلیسی: mill) به فرانسوی: moulin"),
        ("ar", "{{lang-fr|moulin}} {{إنج|mill}}", "بالفرنسية: moulin (بالإنجليزية: mill)"),
        ("de", "{{frS|moulin}} {{arF|word}}", "französisch moulin arabisch word"),
        ("lt", "{{fr|moulin}}", "pranc. moulin"),
        ("sr", "{{јез-нем|Mühle}} {{јез-xx|word}}", "нем. Mühle word"),
        ("zh", "{{lang-fr|moulin}}", "法语：moulin"),
        ("ko", "{{llang|ja|水車|스이샤}}", "일본어: 水車 스이샤"),
        ("nl", "{{lang-fr|moulin}}", "moulin"),
    ],
)
def test_clean_foreign_word_has_the_label_of_its_wiki(language: str, template: str, words: str) -> None:
    assert shown(template, language) == words


# The frequent inline templates of wikis without a table before.
@pytest.mark.parametrize(
    ("language", "template", "words"),
    [
        ("he", "טחנה{{הערה|ראו שם}}{{דרוש מקור}}{{כ}} {{משמאל לימין|mill}}", "טחנה mill"),
        ("uk", "млин{{джерело?}}{{sfn|Мельник|2000}} {{s|до н. е.}} {{наголос|о}}", "млин до н. е. о́"),
        ("fa", "آسیاب{{مدرک}}{{کی؟}} {{چر|mill}}", "آسیاب mill"),
        ("tr", "değirmen{{kaynak belirt|tarih=Mayıs 2010}}{{kim}}{{ne zaman?}}", "değirmen"),
        ("fi", "mylly{{lähde|2010}}{{kuka?}}{{milloin}}", "mylly"),
        ("sv", "kvarn{{källa behövs|datum=2010}}{{vem?}} {{ickebryt|5 km}}", "kvarn 5 km"),
        ("ca", "molí{{citació necessària}}{{quan?}} al {{segle|XX}} {{versaleta|dC}}", "molí al segle XX dC"),
        ("hu", "malom{{forrás?}}{{mikor?}}{{ki?}} {{szám|12345|km}}", "malom 12 345 km"),
        ("ar", "طاحونة{{بحاجة لمصدر|تاريخ=2010}}{{من؟}}{{هامش|ب}}", "طاحونة"),
        ("ko", "물레방아{{출처 필요|날짜=2010}}{{언제?}} {{국기나라|독일}}", "물레방아 독일"),
        ("zh", "水车{{来源请求}}{{何时}}{{谁}}{{R|a}}", "水车"),
        ("nb", "mølle{{trenger referanse}}{{når?}}", "mølle"),
        ("da", "mølle{{kilde mangler|dato=2010}}{{hvem?}}", "mølle"),
        ("el", "μύλος{{εκκρεμεί παραπομπή}} {{π.Χ.}}", "μύλος π.Χ."),
        ("sr", "млин{{чињеница}}{{када?}}", "млин"),
        ("hr", "mlin{{nedostaje izvor}}{{tko?}}", "mlin"),
        ("bg", "мелница{{източник?}}{{кога?}}", "мелница"),
        ("id", "kincir{{butuh rujukan|date=2010}}{{siapa?}}", "kincir"),
        ("vi", "cối xay{{cần dẫn nguồn}}{{khi nào?}}", "cối xay"),
        ("eo", "muelejo{{mankas fonto}}", "muelejo"),
        ("fr", "le {{CO2}} et l'{{H2O}}", "le CO₂ et l'H₂O"),
        ("es", "en {{ESP}} y {{bandera2|Alemania}}", "en España y Alemania"),
        ("de", "in {{GER}}, {{DEU|#}} und {{AUT}}", "in Deutschland, und Österreich"),
        ("ja", "{{JPN}}と{{flag|FRA}}", "日本とフランス"),
        ("en", "{{flag|DEU}} and {{aut|Miller}}", "Germany and Miller"),
    ],
)
def test_clean_frequent_templates_of_a_wiki_cost_no_sentence(language: str, template: str, words: str) -> None:
    assert shown(template, language) == words


@pytest.mark.parametrize(
    ("language", "date"),
    [
        ("sv", "5 mars 1999"),
        ("da", "5. marts 1999"),
        ("ca", "5 de març de 1999"),
        ("hu", "1999. március 5."),
        ("ja", "1999年3月5日"),
        ("ko", "1999년 3월 5일"),
        ("vi", "5 tháng 3 năm 1999"),
        ("uk", "5 березня 1999"),
        ("hr", "5. ožujka 1999."),
        ("he", "5 במרץ 1999"),
        ("tr", "5 Mart 1999"),
    ],
)
def test_clean_date_is_written_as_in_the_language(language: str, date: str) -> None:
    assert shown("{{start date|1999|3|5}}", language) == date


def test_clean_name_of_another_language_counts_where_it_is_unambiguous() -> None:
    # Serbian and Croatian agree; "izvor" is too short to be told apart from a word of another language's template.
    assert shown("mlin{{nedostaje izvor}}", "xx") == "mlin"
    assert shown("mlin{{kada}}", "xx") == ""


MEANINGS = yaml.load((TABLES / "templates.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def test_template_table_every_meaning_has_a_description_a_form_and_names() -> None:
    for meaning in MEANINGS:
        assert {"means"} < set(meaning) <= {"means", "shows", "by", "call", "names", "words"}
        assert ("call" in meaning) != ("shows" in meaning), meaning["means"]
        assert meaning.get("names") or meaning.get("words"), meaning["means"]


@pytest.mark.parametrize("language", languages())
def test_template_table_every_name_is_found_and_unique(language: str) -> None:
    table = template_table(language)
    names = [name for entry in read_names() if entry.language == language for name in entry.names]
    assert [name for name in names if table.find(name if name == "*" else name.strip("*")) is None] == []
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert [name for name in names if name not in (name.lower(), name.upper())] == []


WORDS = st.text(st.characters(categories=["L", "N", "P", "Zs", "S"]), max_size=8)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.sampled_from([(entry.language, name.strip("*")) for entry in read_names() for name in entry.names]),
    st.lists(st.one_of(WORDS, st.integers(-5, 3000).map(str), st.just("p=1")), max_size=5),
)
def test_clean_known_template_any_arguments_leave_no_markers(known: tuple[str, str], arguments: list[str]) -> None:
    language, name = known
    page = f"{PLAIN}\n\nThey say {{{{{'|'.join([name, *arguments])}}}}} is here, amid it.\n\n{LAST}"
    text = clean(page, make_siteinfo("wiki", language, {}))
    assert not any("\ue000" <= character <= "\ue00f" or character >= "\U000f0000" for character in text)
    assert text.startswith(PLAIN) or set("{}[]<>") & set("".join(arguments))
