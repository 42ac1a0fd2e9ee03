"""The filter rules of published corpora, each with a text that it refuses."""

from __future__ import annotations

import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.data import BooksParams
from pipeline_src.study.filters import FiltersParams
from pipeline_src.study.reading import check_block
from pipeline_src.text.filters import SENTENCE_ENDS, refusal

GROUPS = ("gopher_quality", "gopher_repetition", "c4", "fineweb")
ALL = FiltersParams.model_validate({group: {} for group in GROUPS})
KEYS = {
    f"{group}.{key}"
    for group in GROUPS
    for key in type(getattr(ALL, group)).model_fields
    if key.startswith(("min_", "max_"))
}
WORDS = """
    It was a bright cold day in April and the clocks of every tower that we have seen were striking one hour or another
    with some delay because no keeper had wound them to an equal time since winter ended when snow lay deep upon roofs
    """.split()
SENTENCES = (
    "The old house stood at the end of a long road that nobody used.",
    "In winter its windows have been dark for weeks, and with them the garden.",
    "A gardener came to look after roses every second month.",
    "He spoke to no one, and left before noon with his tools.",
    "Children where that somebody was living under its roof.",
    "Nobody believed them until a lamp began to burn upstairs.",
)
PROSE = "\n".join(SENTENCES)
# rule -> a text of which its group's other rules have nothing to say
REFUSED_TEXTS = {
    "gopher_quality.min_words": "Too few of the words to be kept.",
    "gopher_quality.max_words": "that have been " * 33_334,
    "gopher_quality.min_mean_word_length": "to be " * 60,
    "gopher_quality.max_mean_word_length": "the internationalisation of unsatisfactorily " * 40,
    "gopher_quality.max_hashes_per_word": PROSE.replace("e ", "e # "),
    "gopher_quality.max_ellipses_per_word": PROSE.replace(" t", "… t"),
    "gopher_quality.max_bullet_lines": "\n".join(f"- {line}" for line in SENTENCES),
    "gopher_quality.max_ellipsis_lines": "\n".join(f"{line[:-1]}..." for line in SENTENCES),
    "gopher_quality.min_alphabetic_words": " ".join(f"{word} 12.50" for word in WORDS),
    "gopher_quality.min_stop_words": "dies ist ein langer deutscher Satz ohne jedes englische Wort " * 10,
    "gopher_repetition.max_duplicate_paragraphs": f"ab\n\nab\n\nab\n\n{PROSE}",
    "gopher_repetition.max_duplicate_paragraph_chars": f"{'uvw xyz ' * 40}\n\n{'uvw xyz ' * 40}\n\n1\n\n2\n\n{PROSE}",
    "gopher_repetition.max_duplicate_lines": f"a\na\na\na\na\na\na\n{PROSE}",
    "gopher_repetition.max_duplicate_line_chars": f"{PROSE}\n{SENTENCES[0]}\n{SENTENCES[1]}",
    "gopher_repetition.max_top_2_gram": " ".join(f"{word} of course" for word in WORDS),
    "gopher_repetition.max_top_3_gram": " ".join(f"{word} in the end" for word in WORDS[::2]),
    "gopher_repetition.max_top_4_gram": " ".join(f"{word} at the very end" for word in WORDS[::3]),
    **{
        f"gopher_repetition.max_duplicate_{n}_grams": " and ".join(
            [" ".join(WORDS), *(" ".join(WORDS[start : start + n]) for start in (7, 17, 27))]
        )
        for n in (5, 6, 7, 8, 9, 10)
    },
    "c4.max_lorem_ipsum": f"{PROSE}\nLorem ipsum dolor sit amet.",
    "c4.max_curly_brackets": f"{PROSE}\nfunction f() {{ return 1; }}.",
    "c4.min_sentences": "\n".join(SENTENCES[:4]),
    "fineweb.min_punctuated_lines": PROSE.replace(".\n", "\n").rstrip("."),
    "fineweb.max_short_lines": "\n".join(f"{word} ended here." for word in WORDS),
    "fineweb.max_duplicate_line_chars": f"{PROSE}\n{SENTENCES[0]}",
    "fineweb.max_newlines_per_word": "\n".join(["Unübersehbarkeiten veröffentlicht.", *WORDS]).replace("\n", ".\n"),
}


UNSPACED = {
    "zh": """老房子立在一条没有人走的长路尽头，窗户在冬天总是黑的。
        “园丁每个月来看一次玫瑰。”孩子们说，“他从来不和别人说话。”
        中午以前，他就带着工具离开了，花园里又安静下来。
        许多年以后，有人在楼上看见一盏灯，大家才相信他们的话。
        第二天早晨，村里的人走进花园，发现门是开着的……里面却没有人。
        桌上放着三封信，都写着同一个名字，日期是1911年5月2日。""",
    "ja": """古い家は、誰も通らない長い道の終わりに立っていた。
        冬になると窓は何週間も暗いままで、庭も静かだった。
        「庭師は月に一度、バラの世話をしに来る」と子供たちは言った。
        彼は誰とも話さず、昼前に道具を持って帰っていった。
        二階に灯りがともるまで、その話を信じる人はいなかった。
        翌朝、村の人々が庭に入ると、扉は開いていて、中には誰もいなかった。""",
    "th": """บ้านหลังเก่าตั้งอยู่สุดถนนสายยาวที่ไม่มีใครเดินผ่าน ในฤดูหนาวหน้าต่างมืดอยู่หลายสัปดาห์
        คนสวนมาดูแลดอกกุหลาบเดือนละครั้ง เขาไม่พูดกับใครเลยและกลับไปก่อนเที่ยงพร้อมเครื่องมือ
        เด็ก ๆ เล่าว่ามีใครบางคนอาศัยอยู่ใต้หลังคานั้น แต่ไม่มีผู้ใหญ่คนไหนเชื่อเรื่องที่พวกเขาเล่า
        จนกระทั่งคืนหนึ่งมีแสงตะเกียงส่องออกมาจากชั้นบน ชาวบ้านจึงเข้าไปดูในเช้าวันรุ่งขึ้น (พ.ศ. 2454)""",
    "my": """အိမ်ဟောင်းကြီးသည်လူမသွားသောလမ်းရှည်၏အဆုံးတွင်တည်ရှိသည်။ ဆောင်းတွင်၌ပြတင်းပေါက်များမှောင်နေတတ်သည်။
        ဥယျာဉ်မှူးသည်တစ်လလျှင်တစ်ကြိမ်နှင်းဆီပန်းများကိုလာကြည့်သည်။ သူသည်မည်သူနှင့်မျှစကားမပြောပါ။
        ကလေးများကထိုအိမ်တွင်လူတစ်ယောက်နေသည်ဟုပြောကြသည်။ မည်သူမျှမယုံကြည်ခဲ့ကြပါ။
        တစ်ညတွင်အပေါ်ထပ်မှမီးလင်းလာသောအခါရွာသားများအံ့သြသွားကြသည်။""",
    "bo": """ཁང་པ་རྙིང་པ་དེ་མི་མི་འགྲོ་བའི་ལམ་རིང་པོའི་མཐའ་ལ་ཡོད། དགུན་ཁར་སྒེའུ་ཁུང་ཚང་མ་ནག་པོ་ཡིན།
        ལྡུམ་ར་བ་ཟླ་བ་རེར་ཐེངས་གཅིག་མེ་ཏོག་ལ་ལྟ་རུ་ཡོང་། ཁོས་མི་སུ་དང་ཡང་སྐད་ཆ་མི་ཤོད།
        ཕྲུ་གུ་ཚོས་ཁང་པ་དེའི་ནང་ལ་མི་ཞིག་སྡོད་ཀྱི་ཡོད་ཟེར། སུས་ཀྱང་ཡིད་ཆེས་མ་བྱས།
        མཚན་མོ་ཞིག་ལ་སྒྲོན་མེ་འབར་བས་གྲོང་པའི་མི་ཚང་མ་ཧང་སངས།""",
    "hi": """पुराना घर एक लंबी सड़क के अंत में खड़ा था, जिस पर कोई नहीं चलता था।
        सर्दियों में उसकी खिड़कियाँ हफ़्तों तक अँधेरी रहती थीं और बगीचा भी सूना रहता था।
        माली हर महीने एक बार गुलाबों को देखने आता था। वह किसी से बात नहीं करता था।
        दोपहर से पहले वह अपने औज़ार लेकर लौट जाता था, और बगीचे में फिर से शांति छा जाती थी।
        बच्चों ने कहा कि उस छत के नीचे कोई रहता है। किसी ने उनकी बात नहीं मानी।""",
}  # fmt: skip


def only(rule: str) -> FiltersParams:
    """All rules of a group off but one."""
    group, _, key = rule.partition(".")
    off = {name: None for name in type(getattr(ALL, group)).model_fields if name.startswith(("min_", "max_"))}
    del off[key]
    return FiltersParams.model_validate({group: off})


def test_refusal_examples_cover_every_rule() -> None:
    assert REFUSED_TEXTS.keys() == KEYS


@pytest.mark.parametrize("rule", sorted(REFUSED_TEXTS))
def test_refusal_text_that_breaks_the_rule_is_refused(rule: str) -> None:
    refused = refusal(REFUSED_TEXTS[rule], only(rule), "en")
    assert refused is not None
    assert refused.rule == rule
    assert refused.limit == getattr(getattr(ALL, rule.partition(".")[0]), rule.partition(".")[2])
    assert refused.value < refused.limit if ".min_" in rule else refused.value > refused.limit
    assert refusal(PROSE, only(rule), "en") is None


def test_refusal_prose_passes_all_rules() -> None:
    assert refusal(PROSE, ALL, "en") is None


@pytest.mark.parametrize("language", UNSPACED)
def test_refusal_prose_of_other_scripts_passes_all_rules(language: str) -> None:
    text = "\n".join(map(str.strip, UNSPACED[language].splitlines()))
    groups = {group: {} for group in GROUPS}
    if language == "hi":
        groups["gopher_quality"] = {"stop_words": ["और", "के"]}
    assert refusal(text, FiltersParams.model_validate(groups), language) is None
    # An article of one paragraph, as long as cleaning joins lines.
    assert refusal(text.replace("\n", " " * (language != "zh")), only("c4.min_sentences"), language) is None


def test_refusal_repeated_text_without_spaces_is_refused() -> None:
    lines = list(map(str.strip, UNSPACED["zh"].splitlines()))
    repeated = "".join([lines[0], *(f"{line}{lines[1][:22]}" for line in lines)])
    assert refusal(repeated, only("gopher_repetition.max_duplicate_5_grams"), "zh") is not None
    assert refusal("水车转。" * 100, only("gopher_repetition.max_top_2_gram"), "zh") is not None


def test_refusal_chinese_stop_words_are_counted_inside_text() -> None:
    text = UNSPACED["zh"].replace("\n", "")
    verdicts = []
    for stop_words in (["的", "了", "the"], ["的", "她", "the"], ["the", "of"]):
        filters = {"gopher_quality": {"stop_words": stop_words, "min_words": None}}
        verdicts.append(refusal(text, FiltersParams.model_validate(filters), "zh"))
    assert verdicts == [None, ("gopher_quality.min_stop_words", 1, 2), None]


def test_refusal_changed_threshold_changes_the_verdict() -> None:
    text = " ".join(WORDS[:30]) + "."
    loose, strict = ({"gopher_quality": {"min_words": limit}} for limit in (30, 31))
    assert refusal(text, FiltersParams.model_validate(loose), "en") is None
    assert refusal(text, FiltersParams.model_validate(strict), "en") == ("gopher_quality.min_words", 30, 31)


def test_refusal_german_text_with_german_stop_words_is_kept() -> None:
    text = REFUSED_TEXTS["gopher_quality.min_stop_words"]
    german = {"gopher_quality": {"stop_words": ["ein", "ist", "der", "und"]}}
    assert refusal(text, FiltersParams.model_validate(german), "de") is None


def test_c4_ignored_lines_are_not_counted() -> None:
    c4 = FiltersParams.model_validate({"c4": {}})
    noise = ["Enable JavaScript { to go on.", "See our privacy policy {.", "lorem ipsum", "{ no stop", "Two words."]
    assert refusal("\n".join([*SENTENCES[:5], *noise[:1], *noise[2:]]), c4, "en") is None
    assert refusal("\n".join([*SENTENCES[:4], noise[0], noise[2], noise[4]]), c4, "en") == ("c4.min_sentences", 4, 5)
    assert refusal("\n".join([*SENTENCES[:5], noise[1]]), c4, "en") == ("c4.max_curly_brackets", 1, 0)


TEXT = st.one_of(
    st.text(max_size=300),
    st.lists(st.sampled_from([*SENTENCES, *WORDS, "#", "…", "...", "\n", "\n\n", "{", "- x", "\x85"])).map(" ".join),
    st.lists(st.sampled_from([*SENTENCES, "a", "a", "", "•", "1 2 3"])).map("\n".join),
)


@given(TEXT)
def test_refusal_any_text_value_exceeds_the_limit(text: str) -> None:
    alone = [refusal(text, FiltersParams.model_validate({group: {}}), "en") for group in GROUPS]
    assert refusal(text, ALL, "en") == next(filter(None, alone), None)
    for refused in alone:
        if refused is not None:
            assert refused.rule in KEYS
            assert refused.value < refused.limit if ".min_" in refused.rule else refused.value > refused.limit
            group, _, key = refused.rule.partition(".")
            after = refusal(text, FiltersParams.model_validate({group: {key: None}}), "en")
            assert after is None or after.rule != refused.rule
    assert refusal(text, FiltersParams(), "en") is None


@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ({"gopher": {}}, "unknown key: filters.gopher"),
        ({"c4": {"min_sentence": 5}}, "filters.c4.min_sentence"),
        ({"c4": None}, "write {} for the published thresholds"),
        ({"fineweb": {"max_short_lines": 2}}, "filters.fineweb.max_short_lines = 2"),
        ({"gopher_quality": {"min_words": -1}}, "filters.gopher_quality.min_words = -1"),
        ([], "filters"),
    ],
)
def test_filters_params_invalid_value_is_rejected(filters: object, where: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(where)):
        check_block(BooksParams, {"from": "x", "filters": filters}, "params.yaml")


def test_filters_params_missing_filters_key_is_rejected() -> None:
    written = BooksParams(entry="x").model_dump(mode="json", exclude={"filters", "entry"}) | {"from": "x"}
    with pytest.raises(PipelineError, match="`filters: {}`"):
        check_block(BooksParams, written, "params.yaml", complete=True)
    checked = check_block(BooksParams, {**written, "filters": {"c4": {}}}, "params.yaml", complete=True)
    assert checked.filters.c4 == ALL.c4
    assert checked.filters.fineweb is None


def test_sentence_ends_equal_unicode_property_except_khmer():
    assert {end for end in SENTENCE_ENDS if not regex.match(r"\p{Sentence_Terminal}", end)} == set("\u17d6\u17d9\u17da")
    assert len(SENTENCE_ENDS) == 159
