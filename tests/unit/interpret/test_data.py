"""Sentences of the study's text, and the labels of its tagging tasks."""

from __future__ import annotations

from pipeline_src.interpret.data import read_tagged, read_texts
from pipeline_src.study.task_spec import load_spec


def test_read_texts_training_and_validation_share_no_document(project):
    sides = read_texts(("books", "wikipedia"), 200, 1, 0.3)
    train, test = ({sentence.document for sentence in side} for side in sides)
    num_words = [sum(len(sentence.words) for sentence in side) for side in sides]
    assert 200 <= num_words[0] < 250 and 50 <= num_words[1] < 100  # up to a document more of each source
    assert train and test and not train & test and {name.split(":")[0] for name in train} == {"books", "wikipedia/all"}


def test_read_tagged_returns_tag_indices_up_to_max_words(tmp_path):
    path = tmp_path / "dev.conllu"
    rows = [("He", "PRON"), ("saw", "VERB"), None, ("Go", "VERB"), None, ("Stop", "VERB"), None]
    path.write_text("".join(f"1\t{row[0]}\t_\t{row[1]}\t_\t_\t_\t_\t_\t_\n" if row else "\n" for row in rows))
    spec = load_spec("pos")
    sentences, labels = read_tagged(spec, path, 3)
    assert [sentence.words for sentence in sentences] == [("He", "saw"), ("Go",)]
    assert [[spec.labels[label] for label in row] for row in labels] == [["PRON", "VERB"], ["VERB"]]
