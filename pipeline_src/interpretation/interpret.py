"""Stage ``interpret``: measure what the pretrained model learnt, against the same architecture with random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from pipeline_src.interpretation.attention_maps import shown_sentences
from pipeline_src.interpretation.bootstrap import balancing, interval, intervals
from pipeline_src.interpretation.data import (
    InterpretationContext,
    Skipped,
    Tagged,
    chosen_sentences,
    words_of,
    words_of_two_sources,
)  # fmt: skip
from pipeline_src.interpretation.generation import check_fills_masks, completions, fill_masks, loss_by_masks
from pipeline_src.interpretation.heads import head_roles, relations
from pipeline_src.interpretation.mdl_probe import online_code
from pipeline_src.interpretation.minimal_pairs import (
    WordPair,
    judge,
    judge_pair_set,
    read_pair_set,
    template_pairs,
)  # fmt: skip
from pipeline_src.interpretation.model import Sentence, StudiedModel, tokenize_words
from pipeline_src.interpretation.probes import CAPITALS, capitals, labelled_words, probe
from pipeline_src.interpretation.senses import in_two_contexts, self_similarity
from pipeline_src.models.bert import check_architecture

MASKS = 8  # that a prompt is completed with

Found = tuple[dict[str, Any], dict[str, str]]  # results by name, and the reason why each missing one is missing
Labels = Sequence[Sequence[int]]  # of each word of each sentence


def run(
    *,
    seed: int,
    corpus: CorpusParams,
    model: ModelParams,
    tasks: tuple[str, ...],
    finetune: FinetuneParams,
    interpretation: InterpretationParams,
) -> None:
    """Write ``results/interpretation/``: a file for each measure, and ``contents.json`` with what is missing and why.

    Args:
        seed: keys the control's weights and all sampling.
        corpus, model, tasks, finetune, interpretation: sections of params.yaml.
    """
    context = InterpretationContext(
        seed, interpretation, tuple(corpus.sources), corpus.validation, tasks,
        Path(finetune.model), model.position_init,
    )  # fmt: skip
    check_architecture(context.model.config, model.architecture, context.folder)
    write_measures(context, INTERPRETATION)


def write_measures(context: InterpretationContext, folder: Path) -> None:
    """Run all measures on a model and write ``folder``; errors as in :func:`run`."""
    torch.set_num_threads(1)  # the order of sums must not depend on the machine
    skipped: dict[str, str] = {}
    with atomic_directory(folder) as out:
        for name, measure in MEASURES.items():
            log.info("measuring %s", name)
            found, reasons = measure(context)
            skipped |= reasons
            write_json(out / f"{name}.json", found)
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


def _collect(parts: dict[str, Callable[[], Any]]) -> Found:
    """Call each part; those that raise Skipped or return None are listed with their reason."""
    found, reasons = {}, {}
    for name, part in parts.items():
        try:
            value = part()
        except Skipped as skipped:
            reasons[name] = str(skipped)
            continue
        if value is None:
            reasons[name] = "the study's data have none"
        else:
            found[name] = value
    return found, reasons


def _probes(context: InterpretationContext) -> Found:
    def tags(task: str) -> Any:
        names, *parts = context.tagged[task]
        sides = [(part.sentences, _tag_numbers(part, names)) for part in parts]
        return _compare_probes(context, sides, len(names), balance=False)

    def capitalisation() -> Any:
        normalizer = context.model.tokenizer.normalizer
        if normalizer is None or normalizer.normalize_str("A") == "A":
            raise Skipped("the model sees capitals")
        sides = [(part.sentences, capitals(part.sentences)) for part in context.texts]
        return _compare_probes(context, sides, len(CAPITALS), balance=True)

    def similarity() -> Any:
        sentences = context.texts[0].sentences
        models = {"model": context.model, "random": context.control}
        return {name: self_similarity(model, sentences, context.seed) for name, model in models.items()}

    found, reasons = _collect(
        {task: partial(tags, task) for task in context.tagged}
        | {"capitals": capitalisation, "self-similarity": similarity}
    )
    return found, reasons | context.untagged


def _tag_numbers(part: Tagged, names: Sequence[str]) -> Labels:
    numbers = {name: number for number, name in enumerate(names)}
    return [[numbers[tag] for tag in row] for row in part.tags]


def _compare_probes(
    context: InterpretationContext, sides: Sequence[tuple[Sequence[Sentence], Labels]], classes: int, balance: bool
) -> dict[str, Any]:
    """Train and test probes on the model and on random weights.

    ``gain`` is the interval of the model's best layer over the best layer of random weights, ``gain_over_types`` over
    the most frequent label of each type. ``between``, ``control_between`` and ``types_between`` are the intervals of
    each layer's score, of its control task and of the most frequent labels. ``online`` is the online code of the
    training labels; its gain is in bits per word, best layer against best layer.
    """
    seed = context.seed
    probes, codes = [], []
    for model in (context.model, context.control):
        train, test = (labelled_words(model, *side) for side in sides)
        probes.append(probe(train, test, classes, seed))
        codes.append(online_code(train, classes, seed))
    (bits, code), (random_bits, random_code) = codes
    shortest, random_shortest = (int(np.argmin(each["code"])) for each in (code, random_code))
    key = "balanced" if balance else "accuracy"
    best, random_best = (int(np.argmax(result.figures[key])) for result in probes)
    correct = [probes[0].correct, probes[1].correct, probes[0].by_type[None]]
    values = [balancing(each, test.labels) if balance else each.astype(float) for each in correct]
    between = [intervals(each, test.documents, seed) for each in values]
    figures = probes[0].figures | {"between": between[0], "types_between": between[2][0]}
    if probes[0].control is not None:
        figures["control_between"] = intervals(probes[0].control, test.documents, seed)
    return {
        "score": key,
        "model": figures,
        "random": probes[1].figures | {"between": between[1]},
        "best_layer": best,
        "gain": interval(values[0][best], values[1][random_best], test.documents, seed),
        "gain_over_types": interval(values[0][best], values[2][0], test.documents, seed),
        "online": {
            "model": code,
            "random": random_code,
            "best_layer": shortest,
            "gain": interval(random_bits[random_shortest], bits[shortest], train.documents, seed),
        },
    }


def _senses(context: InterpretationContext) -> Found:
    model, control, seed = context.model, context.control, context.seed

    def two_sources() -> Any:
        return in_two_contexts(model, control, words_of_two_sources(context.texts[0]), seed)

    return _collect(
        {"two contexts": lambda: in_two_contexts(model, control, context.contexts, seed), "two sources": two_sources}
    )


def _heads(context: InterpretationContext) -> Found:
    def roles() -> Any:
        if not context.params.sentences:
            raise Skipped("interpretation.sentences is 0")
        sentences = context.texts[1].sentences[: context.params.sentences]
        return head_roles(context.model, sentences) | {"random": head_roles(context.control, sentences)["roles"]}

    return _collect(
        {
            "roles": roles,
            "relations": lambda: relations(context.model, context.control, context.trees, context.seed),
        }
    )


def _pairs(context: InterpretationContext) -> Found:
    wanted = context.params.minimal_pairs

    def judged(title: str, pairs: Sequence[WordPair]) -> Any:
        check_fills_masks(context.model)
        found = judge(context.model, context.control, pairs, context.seed)
        return None if found is None else {"title": title, **found}

    sets: dict[str, Callable[[], Any]] = {}
    if "templates" in wanted:
        for name, (title, pairs) in template_pairs().items():
            sets[name] = partial(judged, title, pairs)
    found, reasons = _collect(sets)
    for name in context.params.pair_sets:
        if context.model.lacks:
            reasons[name] = context.model.lacks
        else:
            published = read_pair_set(TASKS / name, context.seed, context.params.pairs_per_set)
            found |= judge_pair_set(context.model, context.control, published, name)
    return found, reasons if wanted else {"minimal pairs": "interpretation.minimal_pairs is empty"}


def _completion(context: InterpretationContext) -> Found:
    model, params = context.model, context.params

    def texts() -> Any:
        if not params.prompts:
            raise Skipped("interpretation.prompts is empty")
        return completions(model, params.prompts, MASKS)

    def masks() -> Any:
        if not params.masks:
            raise Skipped("interpretation.masks is empty")
        return fill_masks(model, params.masks)

    def loss() -> Any:
        train, test = (tokenize_words(model, part.sentences).ids for part in context.texts)
        flat = np.concatenate([np.asarray(text, np.int64) for text in train])
        counts = np.bincount(flat, minlength=model.tokenizer.get_vocab_size())
        return loss_by_masks(model, test, counts, context.seed)

    return _collect({"completions": texts, "filled masks": masks, "loss by masks": loss})


def _sentences(context: InterpretationContext) -> Found:
    def shown() -> Any:
        sentences = [Sentence(words_of(text), text) for text in context.params.shown]
        sentences = sentences or chosen_sentences(context.model, context.texts[1].sentences)
        return shown_sentences(context.model, sentences) or None

    return _collect({"attention": shown})


def _checkpoints(context: InterpretationContext) -> Found:
    def by_step() -> Any:
        kept = PRETRAINED.glob("*/steps/*") if context.folder.parent == PRETRAINED else ()
        checkpoints = sorted((int(path.name), path) for path in kept)
        if not checkpoints:
            raise Skipped("pretrain.keep_checkpoint_steps keeps no models of this one")
        contexts, _ = _collect({"given": lambda: context.contexts})
        if not contexts and not context.tagged:
            raise Skipped("there are no words in two senses, and no tags")
        rows: list[dict[str, Any]] = []
        for step, path in checkpoints:
            model = StudiedModel.open(path)
            row: dict[str, Any] = {"step": step}
            if contexts:
                senses = in_two_contexts(model, context.control, contexts["given"], context.seed)
                row["two contexts"] = senses["accuracy"]
            for task, (names, *parts) in context.tagged.items():
                train, test = (labelled_words(model, part.sentences, _tag_numbers(part, names)) for part in parts)
                row[task] = probe(train, test, len(names), context.seed).figures["accuracy"]
            rows.append(row)
        return rows

    return _collect({"checkpoints": by_step})


MEASURES: dict[str, Callable[[InterpretationContext], Found]] = {  # by the name of its file
    "probes": _probes,
    "senses": _senses,
    "heads": _heads,
    "pairs": _pairs,
    "completion": _completion,
    "sentences": _sentences,
    "checkpoints": _checkpoints,
}
