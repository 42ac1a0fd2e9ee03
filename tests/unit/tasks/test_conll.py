"""Files of tagged words: what is a sentence, a document and a word, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.tasks.files.conll import IOB1, NO_WORDS, as_iob2, read_sentences
from pipeline_src.tasks.files.spec import load_spec

NER, POS = load_spec("ner"), load_spec("pos")

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
# # B-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER


-DOCSTART- -X- -X- O

. . O O"""

CONLLU = """# global.columns = ID FORM LEMMA UPOS
# newdoc id = first
# sent_id = 1
1-2\tdon't\t_\t_\t_
1\tdo\tdo\tAUX\t_
2\tn't\tnot\tPART\t_
3\tNew York\tNew York\tPROPN\t_

# sent_id = 2
# newpar
1\t#\t#\tSYM\t_
1.1\thas\thave\tVERB\t_

# newdoc
# sent_id = 3
1\tyes\tyes\tINTJ\t_

"""


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_marks_part_documents_and_blank_lines_sentences(tmp_path: Path):
    for text in (CONLL, CONLL.replace(" ", "\t"), CONLL.replace("\n", "\r\n"), f"\ufeff{CONLL}\n\n"):
        found = read_sentences(NER, write(tmp_path / "train.txt", text))
        assert [(e.id, e.document) for e in found] == [("0", 1), ("1", 1), ("2", 2)]
        assert [e.words for e in found] == [("EU", "#"), ("Peter", "Blackburn"), (".",)]
        assert [e.tags for e in found] == [("B-ORG", "O"), ("B-PER", "I-PER"), ("O",)]


def test_a_word_keeps_every_character_but_blank_and_tab(tmp_path: Path):
    (example,) = read_sentences(NER, write(tmp_path / "x.txt", "a\u00a0b x x O\n\u2028 x x O\nc\rd x x O\n"))
    assert example.words == ("a\u00a0b", "\u2028", "c\rd")


def test_conllu_passes_over_what_is_no_word_and_counts_it(tmp_path: Path):
    counts: Counter[str] = Counter()
    found = read_sentences(POS, write(tmp_path / "dev.conllu", CONLLU), counts=counts)
    assert [(e.document, e.words) for e in found] == [(1, ("do", "n't", "New York")), (1, ("#",)), (2, ("yes",))]
    assert [e.tags for e in found] == [("AUX", "PART", "PROPN"), ("SYM",), ("INTJ",)]
    assert counts == {
        "comment lines passed over": 7,
        "multiword ranges passed over": 1,
        "empty nodes passed over": 1,
    }


def test_without_marks_each_sentence_is_a_document(tmp_path: Path):
    found = read_sentences(NER, write(tmp_path / "x.txt", "a x x O\n\nb x x O\n"))
    assert [example.document for example in found] == [0, 1]


def test_a_sentence_without_words_is_counted(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "# sent_id = 1\n\n# sent_id = 2\n1\ta\ta\tX\n\n8.1\tb\tb\tX\n"
    (example,) = read_sentences(POS, write(tmp_path / "x.conllu", text), counts=counts)
    assert example.words == ("a",)
    assert counts[NO_WORDS] == 2


@pytest.mark.parametrize(
    ("iob1", "iob2"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER B-PER I-PER I-ORG", "B-PER B-PER I-PER B-ORG"),
        ("O O", "O O"),
        ("B-PER I-PER B-PER", "B-PER I-PER B-PER"),
        ("", ""),
    ],
)
def test_iob1_becomes_iob2(iob1: str, iob2: str):
    assert as_iob2(iob1.split()) == iob2.split()
    assert as_iob2(iob2.split()) == iob2.split()


def test_a_file_in_iob1_is_read_right(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "U.N. x x I-ORG\nofficial x x O\nEkeus x x I-PER\n\nRolf x x I-PER\n"
    found = read_sentences(NER, write(tmp_path / "x.txt", text), counts=counts)
    assert [example.tags for example in found] == [("B-ORG", "O", "B-PER"), ("B-PER",)]
    assert counts == {IOB1: 3}


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("ner", "", "empty file"),
        ("ner", "\n \n", "no words in the file"),
        ("ner", "-DOCSTART- -X- -X- O\n\n", "no words in the file"),
        ("pos", "# text\n\n", "no words in the file"),
        ("ner", "a x x O\nb x O\n", "too short: 3 columns, at least 4[\\s\\S]*bad:2"),
        ("ner", "a x x O\n\n\tx\tx\tO\n", "a word is empty[\\s\\S]*bad:3"),
        ("pos", "1\ta\ta\tX\n2\t\tb\tX\n", "a word is empty[\\s\\S]*bad:2"),
        ("pos", "1\ta\ta\tX\n2 b b X\n", "too short[\\s\\S]*bad:2"),
        ("ner", "a x x O\nb x x B-GEO\n", "unknown label: 'B-GEO'[\\s\\S]*bad:2"),
        ("ner", "a x x S-PER\n", "unknown label: 'S-PER'"),
        ("pos", "1\ta\ta\t_\n", "unknown label: '_'[\\s\\S]*bad:1"),
    ],
)
def test_bad_files_name_line_and_value(tmp_path: Path, task: str, text: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read_sentences(load_spec(task), write(tmp_path / "bad", text))


def test_missing_file_and_other_encodings(tmp_path: Path):
    with pytest.raises(PipelineError, match="task file not found"):
        read_sentences(NER, tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 x x O\n")
    with pytest.raises(PipelineError, match="not UTF-8"):
        read_sentences(NER, tmp_path / "latin.txt")
