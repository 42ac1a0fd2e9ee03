"""What differs by the language of a wiki: prefixes of files, scripts, behaviour switches, redirects."""

from __future__ import annotations

import pytest

from pipeline_src.text.wikipedia.scanner import choose_variants
from pipeline_src.text.wikipedia.siteinfo import REDIRECT, make_siteinfo
from pipeline_src.text.wikipedia.wikitext import clean
from tests.growth import TIMES, assert_linear

PLAIN = "The river runs north through two counties before it meets the sea."
# former and present names of files, without those that a dump's siteinfo has
FILE_ALIASES = {
    "ar": "صورة", "bg": "Картинка", "ca": "Imatge", "cs": "Obrázok", "da": "Billede", "de": "Bild", "el": "Εικόνα",
    "es": "Imagen", "et": "Pilt", "eu": "Irudi", "fa": "تصویر", "fi": "Kuva", "fr": "Image", "he": "תמונה",
    "hu": "Kép", "hy": "Պատկեր", "it": "Immagine", "ja": "画像", "ka": "სურათი", "ko": "그림", "mk": "Слика",
    "nb": "Bilde", "nl": "Afbeelding", "pl": "Grafika", "pt": "Arquivo", "ro": "Imagine", "ru": "Изображение",
    "sr": "Слика", "sv": "Bild", "tr": "Resim", "uk": "Зображення", "vi": "Hình", "zh": "檔案",
}  # fmt: skip
EXTENSIONS = "jpg gif tif webp ogg ogv oga webm wav mp3 pdf djvu xcf stl flac opus mid mpg mpeg"
WIKIS = {"nb": "nowiki"}  # of which the address differs from the language


def test_make_siteinfo_hides_media_special_file_and_category_by_the_names_of_the_dump() -> None:
    names = {-2: "Miðill", -1: "Kerfissíða", 0: "", 2: "Notandi", 6: "Mynd", 14: "Flokkur"}
    hidden = make_siteinfo("iswiki", "en", names).hidden - make_siteinfo("iswiki", "en", {}).hidden
    assert hidden == {"miðill", "kerfissíða", "mynd", "flokkur"}


@pytest.mark.parametrize(("language", "alias"), FILE_ALIASES.items())
def test_clean_file_by_an_alias_of_the_namespace_is_removed(language: str, alias: str) -> None:
    site = make_siteinfo(WIKIS.get(language, f"{language}wiki"), language, {})
    picture = f"[[{alias}:Moinho|thumb|A caption of more than twenty-five characters.]]"
    lower = f"[[ \u200f{alias.lower()} :Moinho|thumb|right]]"
    assert clean(f"{picture}\n{lower}{PLAIN}", site) == PLAIN


@pytest.mark.parametrize(
    "name",
    ["moinho velho.JPEG", "a:b.svg", "a.png\u200e", "a.tiff ", *(f"a.{extension}" for extension in EXTENSIONS.split())],
)
def test_clean_file_by_its_extension_is_removed(name: str) -> None:
    assert clean(f"[[Otra forma:{name}|thumb|A caption of more than twenty-five characters.]]\n{PLAIN}") == PLAIN


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("[[commons:File:Mill.jpg|a picture of it]]", "a picture of it"),
        ("[[Mill: the file.jpg of the year]]", "Mill: the file.jpg of the year"),
        ("[[Mill.jpg|the title]]", "the title"),
        ("[[Error: x.pdf|this]]", "this"),
    ],
)
def test_clean_link_that_only_resembles_a_file_is_shown(link: str, words: str) -> None:
    assert clean(f"{PLAIN} They know {link} in every town.") == f"{PLAIN} They know {words} in every town."


def test_clean_unclosed_link_before_a_file_loses_no_paragraph() -> None:
    assert PLAIN in clean(f"They know [[the mill.\n\n{PLAIN}\n\nSee this: a.jpg]].")


@pytest.mark.parametrize(
    ("language", "markup", "words"),
    [
        ("zh", "-{zh-hant:電腦; zh-hans:计算机;}-", "计算机"),
        ("zh", "-{zh-tw:電腦;zh-cn:计算机}-", "计算机"),
        ("zh", "-{zh-tw:電腦;zh-hk:電子}-", "電腦"),
        ("zh", "-{zh-hant:b;zh:a}-", "a"),
        ("zh", "-{zh-Hant-TW:電腦;zh-hant:b}-", "電腦"),
        ("zh", "-{A|zh-hans:a;zh-hant:b}--{H|zh-hans:c;zh-hant:d}-", "a"),
        ("zh", "-{T|zh-hans:c;zh-hant:d}-a-{-|zh-hans:c;zh-hant:d}-", "a"),
        ("zh", "-{R|a;b}--{zh-hans;zh-hant|c}--{|d}--{}-", "a;bcd"),
        ("zh", "-{a=>zh-hant:b;c=>zh-hans:d}-", "d"),
        ("zh", "-{zh-hans:[[甲|a;b]];zh-hant:c}-", "a;b"),
        ("zh", "-{[[甲|a]]}-", "a"),
        ("zh", "-{zh-hans:x-{R|y}-{{nowrap|z}}-w;zh-hant:c}-", "xyz-w"),
        ("zh", "-{zh-hans:{a}}--{{nowrap|b}}-c", "{a}-b-c"),
        ("zh", "-{{{nowrap|a}}}-", "a"),
        ("zh", "{{nowrap|-{A|zh-hans:a;zh-hant:c}-}}", "a"),
        ("sr", "250-{m}- -{sr-el:b; sr-ec:a}-", "250m a"),
        ("sh", "-{sh-cyrl:b; sh-latn:a}-", "a"),
        ("kk", "-{kk-arab:b; kk-cyrl:a}-", "a"),
        ("ku", "-{ku-arab:b; ku-latn:a}-", "a"),
        ("uz", "-{uz-cyrl:b; uz-latn:a}-", "a"),
        ("gan", "-{gan-hant:b; gan-hans:a}-", "a"),
        ("wuu", "-{wuu-hant:b; wuu-hans:a}-", "a"),
        ("tg", "-{tg-latn:b; tg:a}-", "a"),
        ("shi", "-{shi-tfng:b; shi-latn:a}-", "a"),
        ("crh", "-{crh-cyrl:b; crh-latn:a}-", "a"),
        ("iu", "-{ike-latn:b; ike-cans:a}-", "a"),
        ("en", "a -{b}-", "a -{b}-"),
    ],
)
def test_clean_language_converter_shows_one_variant(language: str, markup: str, words: str) -> None:
    text = clean(f"{PLAIN} They know {markup} in every town.", make_siteinfo("wiki", language, {}))
    assert text == f"{PLAIN} They know {words} in every town."


def test_clean_language_converter_description_drops_its_sentence() -> None:
    text = clean(f"{PLAIN} They know -{{D|zh-hans:a;zh-hant:b}}- here. {PLAIN}", make_siteinfo("wiki", "zh", {}))
    assert text == f"{PLAIN} {PLAIN}"


def test_clean_unclosed_language_converter_loses_only_its_mark() -> None:
    text = clean(f"{PLAIN} They know -{{zh a-{{b}}- in every town.", make_siteinfo("wiki", "zh", {}))
    assert text == f"{PLAIN} They know zh ab in every town."


@pytest.mark.parametrize(
    ("brackets", "words"),
    [
        ("（{{lang-de|Mühle}}{{IPA-de|ˈmyːlə}}）", "（ドイツ語: Mühle）"),
        ("（{{IPA|a}}、みずぐるま）", "（みずぐるま）"),
        ("（[[File:a.svg|x10px]]、みず）", "（みず）"),
        ("（発音：{{IPA|a}}）", ""),
        ("（）", "（）"),
        ("（語頭の{{IPA|h}}は読まない）", "（語頭のhは読まない）"),
    ],
)
def test_clean_full_width_brackets_lose_only_pronunciations(brackets: str, words: str) -> None:
    text = "水車{}は川の水で回るとても古い機械である。"
    assert clean(text.format(brackets), make_siteinfo("jawiki", "ja", {})) == text.format(words)


@pytest.mark.parametrize(
    ("language", "section", "meanings"),
    [
        ("ar", "مراجع", "توضيح"),
        ("ja", "脚注", "aimai"),
        ("ka", "სქოლიო", "მრავალმნიშვნელოვანი"),
        ("zh", "參考資料", "消歧义"),
        ("uk", "Примітки", "Багатозначність"),
        ("he", "הערות שוליים", "פירושונים"),
        ("fa", "پانویس", "ابهام‌زدایی"),
        ("tr", "Kaynakça", "anlam ayrımı"),
        ("sv", "Källor", "förgrening"),
        ("nb", "Eksterne lenker", "peker"),
    ],
)
def test_siteinfo_language_knows_its_sections_and_meanings(language: str, section: str, meanings: str) -> None:
    site = make_siteinfo(f"{language}wiki", language, {})
    assert clean(f"{PLAIN}\n== {section} ==\n{PLAIN}", site) == PLAIN
    assert site.disambiguation.search(f"{{{{{meanings}}}}}")


@pytest.mark.parametrize(
    ("language", "pointer"),
    [("ru", "{{значения}}"), ("ca", "{{polisèmia}}"), ("fi", "{{täsmennys|x}}"), ("en", "{{about|x}}")],
)
def test_siteinfo_pointer_to_other_meanings_makes_no_disambiguation_page(language: str, pointer: str) -> None:
    assert not make_siteinfo(f"{language}wiki", language, {}).disambiguation.search(f"{pointer}\n{PLAIN}")


@pytest.mark.parametrize("run", ["-{", "}-", "-{a}-", "-{zh:", "-{;", "-{zh:a;", "-{{{a", "-{a=>", "-{zh:a=>"])
def test_choose_variants_hostile_page_takes_linear_time(run: str) -> None:
    def choose(times: int) -> str:
        return choose_variants(run * times + "-{" + ";  =>zh:" * times + "}-" * times, "zh")

    assert_linear(choose, 1_000, 1_000 * TIMES)


@pytest.mark.parametrize(
    "switch",
    ["__NOTOC__", "__notoc__", "__KEIN_INHALTSVERZEICHNIS__", "__БЕЗ_ОГЛАВЛЕНИЯ__", "__без_оглавления__", "__目录__"]
    + ["＿＿目次非表示＿＿", "__अनुक्रमणिकाहीन__", "__بی\u200cفهرست__"],
)
def test_clean_behavior_switch_of_any_language_is_removed(switch: str) -> None:
    assert clean(f"{switch}\n{PLAIN} {switch}") == PLAIN


@pytest.mark.parametrize("name", ["__init__", "a__b__", "____"])
def test_clean_underscores_of_a_name_stay(name: str) -> None:
    assert clean(f"{PLAIN} They call it {name} in this language.") == f"{PLAIN} They call it {name} in this language."


def test_clean_bidirectional_controls_are_removed() -> None:
    controls = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    assert clean(controls.join(PLAIN)) == PLAIN


@pytest.mark.parametrize(
    "text",
    [
        "#REDIRECT [[A]]",
        "#redirect: [[A]]",
        "#REDIRECT <!-- c --> <!--\n--> [[A]]",
        "#رجوع_مکرر [[A]]",
        "#تغییر_مسیر[[A]]",
    ]
    + ["#เปลี่ยนทาง [[A]]", "#अनुप्रेषित [[A]]", "#重定向 [[A]]", "\n#YÖNLENDİRME [[A#b]]"],
)
def test_redirect_of_any_language_is_recognized(text: str) -> None:
    assert REDIRECT.match(text)


@pytest.mark.parametrize("text", ["# 1990 [[A]]", "#an old [[A]]", "#REDIRECT <!-- [[A]]", f"{PLAIN} #REDIRECT [[A]]"])
def test_redirect_other_text_is_an_article(text: str) -> None:
    assert not REDIRECT.match(text)
