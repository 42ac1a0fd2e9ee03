"""Files of tagged words, in CoNLL's and CoNLL-U's formats."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.task_spec import Columns, load_spec
from pipeline_src.tasks.conll import IOB1, NO_WORDS, as_iob2, read_sentences
from tests.unit.tasks.conftest import write

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


def test_read_sentences_docstart_line_begins_a_document(tmp_path: Path):
    for text in (CONLL, CONLL.replace(" ", "\t"), CONLL.replace("\n", "\r\n"), f"\ufeff{CONLL}\n\n"):
        result = read_sentences(NER, write(tmp_path / "train.txt", text))
        assert [(e.id, e.document) for e in result] == [("0", 1), ("1", 1), ("2", 2)]
        assert [e.words for e in result] == [("EU", "#"), ("Peter", "Blackburn"), (".",)]
        assert [e.tags for e in result] == [("B-ORG", "O"), ("B-PER", "I-PER"), ("O",)]


def test_read_sentences_word_keeps_unicode_spaces(tmp_path: Path):
    first, second = read_sentences(NER, write(tmp_path / "x.txt", "a\u00a0b x x O\n\u2028 x x O\n\nc\rd x x O\n"))
    assert (*first.words, *second.words) == ("a\u00a0b", "\u2028", "c\rd")
    assert (first.document, second.document) == (0, 1)  # without -DOCSTART-, each sentence is a document


def test_read_sentences_conllu_counts_skipped_lines(tmp_path: Path):
    counts: Counter[str] = Counter()
    result = read_sentences(POS, write(tmp_path / "dev.conllu", CONLLU), counts=counts)
    assert [(e.document, e.words) for e in result] == [(1, ("do", "n't", "New York")), (1, ("#",)), (2, ("yes",))]
    assert [e.tags for e in result] == [("AUX", "PART", "PROPN"), ("SYM",), ("INTJ",)]
    assert counts == {
        "comment lines passed over": 7,
        "multiword ranges passed over": 1,
        "empty nodes passed over": 1,
    }


def test_read_sentences_sentence_without_words_is_counted(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "# sent_id = 1\n\n# sent_id = 2\n1\ta\ta\tX\n\n8.1\tb\tb\tX\n"
    (example,) = read_sentences(POS, write(tmp_path / "x.conllu", text), counts=counts)
    assert example.words == ("a",)
    assert counts[NO_WORDS] == 2


def test_as_iob2_converts_iob1():
    iob1 = "I-PER I-PER O I-LOC B-LOC I-LOC I-ORG".split()
    iob2 = "B-PER I-PER O B-LOC B-LOC I-LOC B-ORG".split()
    assert as_iob2(iob1) == as_iob2(iob2) == iob2


def test_read_sentences_iob1_file_is_converted_and_counted(tmp_path: Path):
    counts: Counter[str] = Counter()
    text = "U.N. x x I-ORG\nofficial x x O\nEkeus x x I-PER\n\nRolf x x I-PER\n"
    result = read_sentences(NER, write(tmp_path / "x.txt", text), counts=counts)
    assert [example.tags for example in result] == [("B-ORG", "O", "B-PER"), ("B-PER",)]
    assert counts == {IOB1: 3}


def test_read_sentences_evaluation_set_has_its_own_columns(tmp_path: Path):
    own = NER.scores["ner"].model_copy(update={"columns": Columns(texts=("1",), label="2")})
    spec = NER.model_copy(update={"scores": {**NER.scores, "ner": own}})
    path = write(tmp_path / "x.txt", "Rolf B-PER x O\n")
    tags = [read_sentences(spec, path, eval_set)[0].tags for eval_set in ("ner", "ner_test", None)]
    assert tags == [("B-PER",), ("O",), ("O",)]


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("ner", "", "empty file"),
        ("ner", "-DOCSTART- -X- -X- O\n\n", "no words in the file"),
        ("ner", "a x x O\nb x O\n", "too few columns: 3 columns, at least 4[\\s\\S]*bad:2"),
        ("ner", "a x x O\n\n\tx\tx\tO\n", "a word is empty[\\s\\S]*bad:3"),
        ("pos", "1\ta\ta\tX\n2 b b X\n", "too few columns[\\s\\S]*bad:2"),
        ("ner", "a x x O\nb x x B-GEO\n", "unknown label: 'B-GEO'[\\s\\S]*bad:2"),
    ],
)
def test_read_sentences_bad_file_is_rejected_with_line(tmp_path: Path, task: str, text: str, message: str):
    with pytest.raises(PipelineError, match=message):
        read_sentences(load_spec(task), write(tmp_path / "bad", text))
