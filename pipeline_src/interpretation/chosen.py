"""What is looked at where a study names nothing: sentences and words of its own text, chosen by rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pipeline_src.interpretation.material import Texts
from pipeline_src.interpretation.senses import LEAST, InContext
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.word_vectors import Sentence, cut_words

SENTENCES, WORDS = 4, 5  # that are shown
SHORTEST, LONGEST = 6, 12  # words of a sentence that fits on a screen
MOST = 12  # occurrences of a word in each source
DOCUMENTS = 2  # of each source that a word stands in, at least: neighbours are never of one document
SPOKEN = 0.5  # of a text's words that another one must hold to be of its language; 0.8 of the project's in English


def chosen_sentences(model: StudiedModel, sentences: Sequence[Sentence]) -> list[Sentence]:
    """Short sentences that end in a mark, each of another document: those cut into the fewest pieces a word.

    Raises:
        Skipped: there are none without a piece that the vocabulary does not know.
    """
    fitting = [each for each in sentences if SHORTEST <= len(each.words) <= LONGEST and not each.words[-1].isalnum()]
    unknown = model.kind.id_of(model.tokenizer, model.kind.unk)
    pieces = zip(fitting, cut_words(model, fitting).ids if fitting else [], strict=True)
    found: dict[str, Sentence] = {}
    for each, ids in sorted(pieces, key=lambda pair: len(pair[1]) / len(pair[0].words)):
        if unknown not in ids:
            found.setdefault(each.document, each)
    if not found:
        raise Skipped("no sentence of the validation text is short and spelt by the vocabulary")
    return list(found.values())[:SENTENCES]


def words_of_two_sources(texts: Texts) -> InContext:
    """Words that stand often in two sources, the rarest first: what a word is about differs most where it says most.

    Its sense is the source. No truth, but what a text has without annotation.

    Raises:
        Skipped: no word does.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, (sentence, source) in enumerate(zip(texts.sentences, texts.sources, strict=True)):
        for word in dict.fromkeys(word.lower() for word in sentence.words if word.isalpha()):
            found[word][source].append(number)
    often = {}
    for word, by_source in found.items():
        enough = {
            source: numbers
            for source, numbers in by_source.items()
            if len(numbers) >= LEAST and len({texts.sentences[number].document for number in numbers}) >= DOCUMENTS
        }
        if len(enough) > 1:
            often[word] = enough
    if not often:
        raise Skipped("no word stands often enough in two sources of the text")
    rarest = sorted(often, key=lambda word: (sum(map(len, often[word].values())), word))[:WORDS]
    sentences: list[Sentence] = []
    senses: dict[str, dict[int, str]] = {word: {} for word in rarest}
    for word in rarest:
        for source, numbers in sorted(often[word].items()):
            for number in numbers[:: -(-len(numbers) // MOST)]:
                senses[word][len(sentences)] = source
                sentences.append(texts.sentences[number])
    return InContext(sentences, senses)


def of_one_language(sentences: Sequence[Sentence], others: Sequence[Sentence]) -> bool:
    """Whether most words of some sentences stand in the others."""
    known = {word.lower() for sentence in others for word in sentence.words}
    words = [word.lower() in known for sentence in sentences for word in sentence.words]
    return sum(words) >= SPOKEN * len(words)
