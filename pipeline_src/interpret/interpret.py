"""Stage ``interpret``: measure what the model learnt, compared with random weights of the same architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.base.files import atomic_directory, write_json
from pipeline_src.base.paths import INTERPRETATION, TASKS
from pipeline_src.base.progress import log
from pipeline_src.interpret.bootstrap import balancing, interval, intervals
from pipeline_src.interpret.data import InterpretationContext, LabelledSentences
from pipeline_src.interpret.generation import completions, fill_masks
from pipeline_src.interpret.heads import head_roles, relations
from pipeline_src.interpret.minimal_pairs import (
    judge_sentence_pairs,
    judge_word_pairs,
    read_pair_set,
    template_pairs,
)
from pipeline_src.interpret.model import Sentence, SkipMeasure
from pipeline_src.interpret.probes import CAPITALS, capitals, labelled_words, probe
from pipeline_src.interpret.senses import in_two_contexts, same_language, self_similarity, two_contexts
from pipeline_src.interpret.sentences import choose_sentences, shown_sentences
from pipeline_src.model.bert import check_architecture
from pipeline_src.study.data import CorpusParams
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.model import ModelParams

# (name -> result, name of a skipped result -> reason)
Results = tuple[dict[str, Any], dict[str, str]]


def run(
    *,
    seed: int,
    corpus: CorpusParams,
    model: ModelParams,
    tasks: tuple[str, ...],
    finetune: FinetuneParams,
    interpretation: InterpretationParams,
) -> None:
    """Write ``results/interpretation/``: a file for each measure, and ``contents.json`` with reasons for gaps."""
    context = InterpretationContext(
        seed=seed,
        params=interpretation,
        sources=tuple(corpus.sources),
        validation=corpus.validation,
        tasks=tasks,
        folder=Path(finetune.model),
        position_init=model.position_init,
    )
    check_architecture(context.model.config, model.architecture, context.folder)
    write_measures(context, INTERPRETATION)


def write_measures(context: InterpretationContext, folder: Path) -> None:
    # With one thread, the order of additions, and so the last digits, does not depend on the number of cores.
    torch.set_num_threads(1)
    skipped: dict[str, str] = {}
    with atomic_directory(folder) as out:
        for name, measure in MEASURES.items():
            log.info("measuring %s", name)
            results, reasons = measure(context)
            skipped |= reasons
            write_json(out / f"{name}.json", results)
        config = context.model.config
        hidden_states, _ = context.model.hidden_states([[]])
        about = {
            "title": config.names.title,
            "layers": len(hidden_states) - 1,
            "width": config.hidden_size,
            "heads": config.num_attention_heads if context.model.attends else 0,
        }
        write_json(out / "contents.json", {"model": about, "skipped": skipped})
    for name, reason in skipped.items():
        log.info("%s left out: %s", name, reason)


def _collect(parts: Mapping[str, Callable[[], Any]]) -> Results:
    # Calls each function in `parts`. If it raises SkipMeasure, the text of the exception is the reason for skipping it.
    results = {}
    reasons = {}
    for name, part in parts.items():
        try:
            results[name] = part()
        except SkipMeasure as skipped:
            reasons[name] = str(skipped)
    return results, reasons


def _probes(context: InterpretationContext) -> Results:
    def tags(task: str) -> Any:
        if task not in context.tagged:
            raise SkipMeasure(f"{task} is not a tagging task")
        classes, train, test = context.tagged[task]
        return _compare_probes(context, train, test, classes, balance=False)

    def capitalisation() -> Any:
        normalizer = context.model.tokenizer.normalizer
        if normalizer is None or normalizer.normalize_str("A") == "A":
            raise SkipMeasure("the model is cased, so its input shows capitals")
        train, test = (LabelledSentences(part, capitals(part)) for part in context.texts)
        return _compare_probes(context, train, test, len(CAPITALS), balance=True)

    def similarity() -> Any:
        sentences, _ = context.texts
        return {
            "model": self_similarity(context.model, sentences, context.seed),
            "random": self_similarity(context.control, sentences, context.seed),
        }

    by_task = {task: partial(tags, task) for task in context.specs}
    return _collect({**by_task, "capitals": capitalisation, "self-similarity": similarity})


def _compare_probes(
    context: InterpretationContext, train: LabelledSentences, test: LabelledSentences, classes: int, balance: bool
) -> dict[str, Any]:
    """Train and test probes on the model and on random weights.

    Among the returned values are these intervals:

    - ``gain``: score of the best layer minus score of the best layer of random weights
    - ``gain_over_types``: score of the best layer minus score of each type's most frequent label (a type is a
      lower-cased word)
    - ``between``: score of each layer
    - ``control_between``: score of each layer on the control task
    - ``types_between``: score of each type's most frequent label
    """
    seed = context.seed
    results = []
    for model in (context.model, context.control):
        train_words = labelled_words(model, *train)
        test_words = labelled_words(model, *test)
        results.append(probe(train_words, test_words, classes, seed))
    of_model, of_control = results
    # Both models have the same test words, since they share the tokenizer.
    labels, documents = test_words.labels, test_words.documents

    def scores(correct: np.ndarray) -> np.ndarray:
        # Returns the score of each word. The mean over words is the probe's score.
        return balancing(correct, labels) if balance else correct.astype(float)

    key = "balanced" if balance else "accuracy"
    best = int(np.argmax(of_model.figures[key]))
    best_of_control = int(np.argmax(of_control.figures[key]))
    model_scores = scores(of_model.correct)
    control_scores = scores(of_control.correct)
    type_scores = scores(of_model.by_type)

    model_figures = of_model.figures | {
        "between": intervals(model_scores, documents, seed),
        "types_between": intervals(type_scores[None], documents, seed)[0],
    }
    if of_model.control is not None:
        model_figures["control_between"] = intervals(of_model.control, documents, seed)
    return {
        "score": key,
        "model": model_figures,
        "random": of_control.figures | {"between": intervals(control_scores, documents, seed)},
        "best_layer": best,
        "gain": interval(model_scores[best], control_scores[best_of_control], documents, seed),
        "gain_over_types": interval(model_scores[best], type_scores, documents, seed),
    }


def _senses(context: InterpretationContext) -> Results:
    def neighbours() -> Any:
        senses = two_contexts()
        if context.params.words and not same_language(senses.sentences, context.texts[0]):
            raise SkipMeasure("the corpus is in another language than this measure's sentences")
        return in_two_contexts(context.model, context.control, senses, context.seed)

    return _collect({"two contexts": neighbours})


def _heads(context: InterpretationContext) -> Results:
    def roles() -> Any:
        limit = context.param("sentences")
        sentences = context.texts[1][:limit]
        return head_roles(context.model, sentences) | {"random": head_roles(context.control, sentences)["roles"]}

    def dependencies() -> Any:
        return relations(context.model, context.control, context.trees, context.seed)

    return _collect({"roles": roles, "relations": dependencies})


def _pairs(context: InterpretationContext) -> Results:
    model = context.model
    control = context.control
    params = context.params
    if not params.minimal_pairs:
        return {}, {"minimal pairs": "interpretation.minimal_pairs is empty"}
    by_set: dict[str, Callable[[], Any]] = {}
    if "templates" in params.minimal_pairs:
        for name, (title, pairs) in template_pairs().items():
            by_set[name] = partial(judge_word_pairs, model, control, pairs, title, context.seed)
    results, reasons = _collect(by_set)
    for name in params.pair_sets:
        if model.lacks:
            reasons[name] = model.lacks
        else:
            sentence_pairs = read_pair_set(TASKS / name, context.seed, params.pairs_per_set)
            judged = judge_sentence_pairs(model, control, sentence_pairs, name)
            results |= judged
            if not judged:
                reasons[name] = "no pair has two different sentences that fit into the model's input"
    return results, reasons


def _completion(context: InterpretationContext) -> Results:
    parts: dict[str, Callable[[], Any]] = {
        "completions": lambda: completions(context.model, context.param("prompts")),
        "filled masks": lambda: fill_masks(context.model, context.param("masks")),
    }
    return _collect(parts)


def _sentences(context: InterpretationContext) -> Results:
    def attention() -> Any:
        sentences = [Sentence.of_text(text, text) for text in context.params.shown]
        return shown_sentences(context.model, sentences or choose_sentences(context.model, context.texts[1]))

    return _collect({"attention": attention})


# Name of the output file, without suffix -> function that computes the measure.
MEASURES: dict[str, Callable[[InterpretationContext], Results]] = {
    "probes": _probes,
    "senses": _senses,
    "heads": _heads,
    "pairs": _pairs,
    "completion": _completion,
    "sentences": _sentences,
}
