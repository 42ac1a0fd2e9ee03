"""What is looked at where a study names nothing."""

from __future__ import annotations

import pytest

from pipeline_src.interpretation.data import (
    MAX_PER_SOURCE,
    Skipped,
    Texts,
    chosen_sentences,
    read_texts,
    read_trees,
    same_language,
    two_contexts,
    words_of_two_sources,
)
from pipeline_src.interpretation.model import Sentence
from pipeline_src.interpretation.senses import in_two_contexts
from pipeline_src.tasks.spec import load_spec
from tests.unit.interpretation.conftest import HE_SAW


def test_texts_of_training_and_of_validation_stay_apart(project):
    train, test = read_texts(("books", "wikipedia"), 400, 1, 0.3)
    documents = [{sentence.document for sentence in part.sentences} for part in (train, test)]
    assert all(documents) and not documents[0] & documents[1] and set(train.sources) == {"books", "wikipedia"}


CONLLU = """# newdoc id = one
# text = He saw the town.
1\tHe\the\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2\tsaw\tsee\tVERB\tVBD\t_\t0\troot\t_\t_
3\tthe\tthe\tDET\tDT\t_\t4\tdet\t_\t_
4\ttown\ttown\tNOUN\tNN\t_\t2\tobj:x\t_\t_
5\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\tbroken\t_\tX\t_\t_\t_\t_\t_\t_

"""


def test_heads_and_relations_are_read_and_what_is_no_tree_is_left_out(tmp_path):
    path = tmp_path / "dev.conllu"
    path.write_text(CONLLU)
    assert read_trees(load_spec("pos"), path) == [HE_SAW]


def sentence(text: str, document: str) -> Sentence:
    return Sentence(tuple(text.split()), document)


def test_sentences_are_short_spelt_by_the_vocabulary_and_of_many_documents(model):
    whole, pieces = "a b c d is .", "aa bb ab ba is ."
    given = [
        *(sentence(text, "one") for text in (pieces, whole)), sentence("a b c d e is .", "one"),
        sentence(pieces, "two"), sentence("a ü c d is .", "three"), sentence("a b is .", "four"),
        sentence("a b c d e is", "five"), sentence(f"{'a ' * 12}.", "six"),
    ]  # fmt: skip
    assert chosen_sentences(model, given) == [given[1], given[3]]
    with pytest.raises(Skipped, match="short and spelt"):
        chosen_sentences(model, given[4:])
    with pytest.raises(Skipped, match="short and spelt"):
        chosen_sentences(model, [])


def two_sources() -> Texts:
    """``bab`` stands often in both sources, ``jab`` in one document of the second, ``a`` oftenest of all."""
    texts = Texts([], [])
    for source, letter in (("books", "c"), ("wikipedia", "d")):
        for number in range(40):
            name = f"{source}{0 if source == 'wikipedia' and number < 20 else number % 4}"
            word = "bab" if number >= 20 else "jab"
            texts.sentences.append(Sentence((word if number % 2 else "e", letter, "a", "."), name))
            texts.sources.append(source)
    return texts


def test_words_of_two_sources_are_the_rarest_that_stand_in_several_documents_of_each(model):
    sentences, senses = words_of_two_sources(two_sources())
    assert list(senses) == ["bab", "e", "a"]  # not `jab`: one document
    for word, by_sentence in senses.items():
        assert all(word in sentences[number].words for number in by_sentence)
        counts = [list(by_sentence.values()).count(source) for source in ("books", "wikipedia")]
        assert min(counts) >= 6 and max(counts) <= MAX_PER_SOURCE
    with pytest.raises(Skipped, match="two sources"):
        words_of_two_sources(Texts(sentences[:3], ["books"] * 3))


def test_neighbours_are_of_another_document(model):
    given = words_of_two_sources(two_sources())
    found = in_two_contexts(model, model, given, 1)
    documents = [given.sentences[number].document for number in given.senses["bab"]]
    for layer in found["words"]["bab"]["neighbours"]:
        for own, others in enumerate(layer):
            assert others and all(documents[other] != documents[own] for other in others)


def test_a_text_of_another_language_is_told():
    sentences, _ = two_contexts()
    assert same_language(sentences, sentences[::2])
    assert not same_language(sentences, [sentence("Der Mann ist nicht hier , und die Stadt auch nicht .", "de")])
