"""Stage ``interpret``: measure what the model learnt, compared with random weights of the same architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.paths import INTERPRETATION, PRETRAINED, TASKS
from pipeline_src.common.progress import log
from pipeline_src.config.data import CorpusParams
from pipeline_src.config.finetune import FinetuneParams
from pipeline_src.config.interpretation import InterpretationParams
from pipeline_src.config.model import ModelParams
from pipeline_src.interpretation.bootstrap import balancing, interval, intervals
from pipeline_src.interpretation.data import InterpretationContext, LabelledSentences, words_of
from pipeline_src.interpretation.generation import completions, fill_masks, loss_by_masks
from pipeline_src.interpretation.heads import head_roles, relations
from pipeline_src.interpretation.mdl_probe import online_code
from pipeline_src.interpretation.minimal_pairs import (
    judge_sentence_pairs,
    judge_word_pairs,
    read_pair_set,
    template_pairs,
)
from pipeline_src.interpretation.model import ProbedModel, Sentence, SkipMeasure, tokenize_words
from pipeline_src.interpretation.probes import CAPITALS, capitals, labelled_words, probe
from pipeline_src.interpretation.senses import (
    WordSenses,
    in_two_contexts,
    same_language,
    self_similarity,
    two_contexts,
    words_of_two_sources,
)
from pipeline_src.interpretation.sentences import choose_sentences, shown_sentences
from pipeline_src.models.bert import check_architecture

Results = tuple[dict[str, Any], dict[str, str]]  # name -> result, and name of a missing result -> the reason


def run(
    *,
    seed: int,
    corpus: CorpusParams,
    model: ModelParams,
    tasks: tuple[str, ...],
    finetune: FinetuneParams,
    interpretation: InterpretationParams,
) -> None:
    """Write ``results/interpretation/``: a file per measure; ``contents.json`` says what is missing, and why."""
    context = InterpretationContext(
        seed, interpretation, tuple(corpus.sources), corpus.validation, tasks,
        Path(finetune.model), model.position_init,
    )  # fmt: skip
    check_architecture(context.model.config, model.architecture, context.folder)
    write_measures(context, INTERPRETATION)


def write_measures(context: InterpretationContext, folder: Path) -> None:
    """Run all measures on the model of ``context``, and write them to ``folder``."""
    torch.set_num_threads(1)  # the order of sums must not depend on the machine
    skipped: dict[str, str] = {}
    with atomic_directory(folder) as out:
        for name, measure in MEASURES.items():
            log.info("measuring %s", name)
            results, reasons = measure(context)
            skipped |= reasons
            write_json(out / f"{name}.json", results)
        config = context.model.config
        model = {
            "title": config.names.title,
            "layers": len(context.model.hidden_states([[]])[0]) - 1,
            "width": config.hidden_size,
            "heads": config.num_attention_heads if context.model.attends else 0,
        }
        write_json(out / "contents.json", {"model": model, "skipped": skipped})
    for name, reason in skipped.items():
        log.info("%s left out: %s", name, reason)


def _collect(parts: Mapping[str, Callable[[], Any]]) -> Results:
    results, reasons = {}, {}
    for name, part in parts.items():
        try:
            results[name] = part()
        except SkipMeasure as skipped:
            reasons[name] = str(skipped)
    return results, reasons


def _probes(context: InterpretationContext) -> Results:
    def tags(task: str) -> Any:
        if task not in context.tagged:
            raise SkipMeasure(f"{task} is no tagging task")
        classes, train, test = context.tagged[task]
        return _compare_probes(context, train, test, classes, balance=False)

    def capitalisation() -> Any:
        normalizer = context.model.tokenizer.normalizer
        if normalizer is None or normalizer.normalize_str("A") == "A":
            raise SkipMeasure("the model sees capitals")
        train, test = (LabelledSentences(part, capitals(part)) for part in context.texts)
        return _compare_probes(context, train, test, len(CAPITALS), balance=True)

    def similarity() -> Any:
        models = {"model": context.model, "random": context.control}
        return {name: self_similarity(model, context.texts[0], context.seed) for name, model in models.items()}

    by_task = {task: partial(tags, task) for task in context.specs}
    return _collect({**by_task, "capitals": capitalisation, "self-similarity": similarity})


def _compare_probes(
    context: InterpretationContext, train: LabelledSentences, test: LabelledSentences, classes: int, balance: bool
) -> dict[str, Any]:
    """Train and test probes on the model and on random weights.

    ``gain`` is the interval of the best layer's score minus the score of the best layer of random weights;
    ``gain_over_types`` is the same minus the score of the most frequent label of each type (lower-cased word).
    ``between``, ``control_between`` and ``types_between`` are the intervals of each layer's score, of the control task,
    and of the most frequent labels. ``online`` is the online code of the training labels, with a gain in bits per word.
    """
    seed = context.seed
    probes, codes = [], []
    for model in (context.model, context.control):
        train_words, test_words = (labelled_words(model, *side) for side in (train, test))
        probes.append(probe(train_words, test_words, classes, seed))
        codes.append(online_code(train_words, classes, seed))
    (bits, code), (random_bits, random_code) = codes
    best_code, best_random_code = int(np.argmin(code["code"])), int(np.argmin(random_code["code"]))
    key = "balanced" if balance else "accuracy"
    best, random_best = (int(np.argmax(result.figures[key])) for result in probes)
    labels, documents = test_words.labels, test_words.documents
    of_model, of_random, of_types = (
        balancing(correct, labels) if balance else correct.astype(float)
        for correct in (probes[0].correct, probes[1].correct, probes[0].by_type)
    )
    figures = probes[0].figures | {
        "between": intervals(of_model, documents, seed),
        "types_between": intervals(of_types[None], documents, seed)[0],
    }
    if probes[0].control is not None:
        figures["control_between"] = intervals(probes[0].control, documents, seed)
    return {
        "score": key,
        "model": figures,
        "random": probes[1].figures | {"between": intervals(of_random, documents, seed)},
        "best_layer": best,
        "gain": interval(of_model[best], of_random[random_best], documents, seed),
        "gain_over_types": interval(of_model[best], of_types, documents, seed),
        "online": {
            "model": code,
            "random": random_code,
            "best_layer": best_code,
            "gain": interval(random_bits[best_random_code], bits[best_code], train_words.documents, seed),
        },
    }


def _senses(context: InterpretationContext) -> Results:
    model, control, seed = context.model, context.control, context.seed
    return _collect({
        "two contexts": lambda: in_two_contexts(model, control, _two_contexts(context), seed),
        "two sources": lambda: in_two_contexts(model, control, words_of_two_sources(context.texts[0]), seed),
    })  # fmt: skip


def _two_contexts(context: InterpretationContext) -> WordSenses:
    senses = two_contexts()
    if context.params.words and not same_language(senses.sentences, context.texts[0]):
        raise SkipMeasure("the text is of another language than the sentences of this project")
    return senses


def _heads(context: InterpretationContext) -> Results:
    def roles() -> Any:
        limit = context.param("sentences")
        sentences = context.texts[1][:limit]
        return head_roles(context.model, sentences) | {"random": head_roles(context.control, sentences)["roles"]}

    def dependencies() -> Any:
        return relations(context.model, context.control, context.trees, context.seed)

    return _collect({"roles": roles, "relations": dependencies})


def _pairs(context: InterpretationContext) -> Results:
    model, control, params = context.model, context.control, context.params
    if not params.minimal_pairs:
        return {}, {"minimal pairs": "interpretation.minimal_pairs is empty"}
    sets = template_pairs() if "templates" in params.minimal_pairs else {}
    by_set = {
        name: partial(judge_word_pairs, model, control, pairs, title, context.seed)
        for name, (title, pairs) in sets.items()
    }
    results, reasons = _collect(by_set)
    for name in params.pair_sets:
        if model.lacks:
            reasons[name] = model.lacks
        else:
            pairs = read_pair_set(TASKS / name, context.seed, params.pairs_per_set)
            results |= judge_sentence_pairs(model, control, pairs, name)
    return results, reasons


def _completion(context: InterpretationContext) -> Results:
    model = context.model

    def loss() -> Any:
        train, test = (tokenize_words(model, part).ids for part in context.texts)
        flat = np.concatenate([np.asarray(text, np.int64) for text in train])
        counts = np.bincount(flat, minlength=model.tokenizer.get_vocab_size())
        return loss_by_masks(model, test, counts, context.seed)

    return _collect({
        "completions": lambda: completions(model, context.param("prompts")),
        "filled masks": lambda: fill_masks(model, context.param("masks")),
        "loss by masks": loss,
    })  # fmt: skip


def _sentences(context: InterpretationContext) -> Results:
    def attention() -> Any:
        sentences = [Sentence(words_of(text), text) for text in context.params.shown]
        return shown_sentences(context.model, sentences or choose_sentences(context.model, context.texts[1]))

    return _collect({"attention": attention})


def _checkpoints(context: InterpretationContext) -> Results:
    def by_step() -> Any:
        folders = PRETRAINED.glob("*/steps/*") if context.folder.parent == PRETRAINED else ()
        checkpoints = sorted((int(folder.name), folder) for folder in folders)
        if not checkpoints:
            raise SkipMeasure("pretrain.keep_checkpoint_steps keeps no models of this one")
        senses, _ = _collect({"two contexts": lambda: _two_contexts(context)})
        if not senses and not context.tagged:
            raise SkipMeasure("there are no words in two senses, and no tags")
        by_checkpoint: list[dict[str, Any]] = []
        for step, folder in checkpoints:
            model = ProbedModel.open(folder)
            figures: dict[str, Any] = {"step": step}
            for name, word_senses in senses.items():
                figures[name] = in_two_contexts(model, context.control, word_senses, context.seed)["accuracy"]
            for task, (classes, *parts) in context.tagged.items():
                train, test = (labelled_words(model, *part) for part in parts)
                figures[task] = probe(train, test, classes, context.seed).figures["accuracy"]
            by_checkpoint.append(figures)
        return by_checkpoint

    return _collect({"checkpoints": by_step})


MEASURES: dict[str, Callable[[InterpretationContext], Results]] = {  # name of the file -> measure
    "probes": _probes,
    "senses": _senses,
    "heads": _heads,
    "pairs": _pairs,
    "completion": _completion,
    "sentences": _sentences,
    "checkpoints": _checkpoints,
}
