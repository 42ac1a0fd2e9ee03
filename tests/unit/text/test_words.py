"""Words of a text in any script."""

from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline_src.text import words as module
from pipeline_src.text.documents import Document
from pipeline_src.text.words import count_words, first_words, is_unspaced, num_letters, space_words, split_words

UNSPACED = """Han Hiragana Katakana Bopomofo Yi Thai Lao Tibetan Myanmar Khmer Tai_Le New_Tai_Lue Tai_Tham Tai_Viet
Balinese Javanese""".split()
OF_UNSPACED = regex.compile("[" + "".join(rf"\p{{scx={script}}}" for script in UNSPACED) + "\U00020000-\U0003ffff]")
UNASSIGNED = regex.compile(r"\p{Cn}")
SENTENCES = {
    "zh": "水车在河边不停地转动,磨坊主人每天早晨都去看它。「河水很深」,他对孩子们说,“不要靠近。”",
    "ja": "水車は川のほとりで回り続け、粉屋は毎朝それを見に行く。「川は深い」と、彼は子供たちに言った。",
    "ja kana": "むかしむかしあるところに、おじいさんとおばあさんがすんでいました。テレビはまだありません。",
    "th": "กังหันน้ำหมุนอยู่ริมแม่น้ำตลอดทั้งวัน เจ้าของโรงสีเดินไปดูมันทุกเช้า แล้วกลับมากินข้าวกับลูกของเขา ",
    "lo": "ກັງຫັນນ້ຳໝຸນຢູ່ແຄມແມ່ນ້ຳຕະຫຼອດມື້ ເຈົ້າຂອງໂຮງສີໄປເບິ່ງມັນທຸກໆເຊົ້າ ແລ້ວກັບມາກິນເຂົ້າ ",
    "km": "កង់ទឹកវិលនៅមាត់ទន្លេពេញមួយថ្ងៃ ម្ចាស់ម៉ាស៊ីនទៅមើលវារៀងរាល់ព្រឹក។ ",
    "my": "ရေဘီးသည်မြစ်ကမ်းနားတွင်တစ်နေ့လုံးလည်နေသည်။ ဆန်စက်ပိုင်ရှင်သည်နံနက်တိုင်းသွားကြည့်သည်။ ",
    "bo": "ཆུ་འཁོར་གཙང་པོའི་འགྲམ་དུ་ཉིན་གང་པོར་འཁོར། འཐག་ཁང་གི་བདག་པོས་ཞོགས་པ་ལྟར་བལྟ་རུ་འགྲོ། ",
}


def text_of(language: str, length: int) -> str:
    """Sentences of a language up to a number of characters."""
    sentence = SENTENCES[language]
    return (sentence * (length // len(sentence) + 1))[:length]


@given(st.text(max_size=200))
@example("a\x1cb\x85c d\u2028e")
@example("हिन्दी में, 한국어 (韓國語가 아님)! ðŸ’ ﻿x")
def test_count_words_scripts_with_spaces_equals_str_split(text: str) -> None:
    text = UNASSIGNED.sub("", OF_UNSPACED.sub("", text))
    assert split_words(text) == text.split()
    assert count_words(text) == Document("", "", text).words == len(text.split())
    assert module._WORD.findall(text) == text.split()


def test_count_words_long_text_equals_split_words() -> None:
    text = "mill  wheel\n" * (module.MAX_SPLIT_CHARACTERS // 12 + 1)
    assert count_words(text) == len(text.split())


def test_is_unspaced_letters_equal_unicode_scripts() -> None:
    letters = [chr(code) for code in range(0x20000) if unicodedata.category(chr(code))[0] == "L"]
    tone_marks, old_kana = range(0x2B0, 0x300), range(0x16FE0, 0x20000)
    expected = {letter for letter in letters if OF_UNSPACED.match(letter)}
    expected.difference_update(map(chr, (*tone_marks, *old_kana)))
    found = set(filter(is_unspaced, letters))
    assert {f"{ord(letter):x}" for letter in found ^ expected} == set()
    assert is_unspaced("\U0002a6d6") and not is_unspaced("𝔘")


@pytest.mark.parametrize("language", SENTENCES)
def test_count_words_chinese_article_matches_its_translation(language: str) -> None:
    num_words = count_words(text_of(language, 200))
    low, high = (75, 100) if language in ("zh", "ja", "ja kana") else (35, 50)
    assert low <= num_words <= high
    assert count_words(text_of(language, 6_000)) == pytest.approx(30 * num_words, rel=0.05)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("水车转动。", ["水车", "转动。"]),
        ("「磨坊」", ["「磨坊」"]),
        ("IBM公司于1911年", ["IBM", "公司", "于", "1911", "年"]),
        ("水 ABC, def", ["水", "ABC,", "def"]),
        ("น้ำหมุน อยู่", ["น้ำหม", "ุน", "อยู่"]),
        ("한국어 역사", ["한국어", "역사"]),
    ],
)
def test_split_words_cuts_by_length_and_keeps_punctuation(text: str, words: list[str]) -> None:
    assert split_words(text) == words
    assert count_words(text) == len(words)


@given(st.text(alphabet="水车 a。「ม้\n1", max_size=60), st.integers(1, 10))
def test_split_words_joined_words_equal_text_without_spaces(text: str, count: int) -> None:
    assert "".join(split_words(text)) == "".join(text.split())
    start = first_words(text, count)
    assert text.startswith(start)
    assert split_words(start) == split_words(text)[:count]


@given(st.text(alphabet="水车转动河", min_size=2, max_size=30), st.text(alphabet="水车", max_size=3))
def test_space_words_different_starts_give_same_end(text: str, start: str) -> None:
    words = space_words(text).split()
    assert words == [text[index : index + 2] for index in range(len(text))]
    assert space_words(start + text).split()[-len(words) :] == words


def test_space_words_scripts_with_spaces_are_unchanged() -> None:
    assert space_words("Don’t go: 한국어.") == "Don’t go: 한국어."
    assert space_words("น้ำหมุน。X") == " น้ำหม  ้ำหมุ  ำหมุน  หมุน  มุน  ุน  น   X"


def test_num_letters_han_and_kana_count_two_and_a_half() -> None:
    assert (num_letters("mill"), num_letters("Mühle"), num_letters("水車小屋"), num_letters("한국")) == (4, 5, 10, 2)


@pytest.mark.parametrize("text", ["「" * 20_000, "水" * 20_000, "。" * 20_000 + " a", "้" * 20_000, "a" * 20_000 + "水"])
def test_split_words_long_runs_take_linear_time(text: str) -> None:
    assert "".join(split_words(text)) == "".join(text.split())
    assert count_words(text) <= len(text)
