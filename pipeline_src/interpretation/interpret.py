"""Stage ``interpret``: what the pretrained model learnt, beside the same architecture with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline_src.common.files import atomic_directory, write_json
from pipeline_src.common.paths import INTERPRETATION, PRETRAINED, TASKS
from pipeline_src.common.progress import log
from pipeline_src.interpretation.chosen import chosen_sentences, words_of_two_sources
from pipeline_src.interpretation.completion import completions, filled, loss_by_masks
from pipeline_src.interpretation.contextuality import self_similarity
from pipeline_src.interpretation.heads import head_roles, relations
from pipeline_src.interpretation.layers import probe_capitals, probe_tags, tags_by_layer
from pipeline_src.interpretation.minimal_pairs import judge, template_pairs, treebank_pairs
from pipeline_src.interpretation.pair_sets import judge_pair_set, read_pair_set
from pipeline_src.interpretation.senses import in_two_contexts, told_apart, words_of
from pipeline_src.interpretation.shown_sentences import shown_sentences
from pipeline_src.interpretation.skipped import Skipped
from pipeline_src.interpretation.structure import structure
from pipeline_src.interpretation.studied_model import StudiedModel
from pipeline_src.interpretation.study import Study
from pipeline_src.interpretation.word_vectors import Sentence, cut_words
from pipeline_src.models.architecture import check_architecture
from pipeline_src.params.corpus import CorpusParams
from pipeline_src.params.finetune import FinetuneParams
from pipeline_src.params.interpretation import InterpretationParams
from pipeline_src.params.model import ModelParams
from pipeline_src.params.wikipedia import WikipediaParams

MASKS = 8  # that a prompt is completed with


def run(
    *,
    seed: int,
    wikipedia: WikipediaParams,
    corpus: CorpusParams,
    model: ModelParams,
    tasks: tuple[str, ...],
    finetune: FinetuneParams,
    interpretation: InterpretationParams,
) -> None:
    """Write ``results/interpretation/``: a file for each measure, and ``contents.json``, which says what is missing.

    Args:
        seed: of the control's weights and of all draws.
        wikipedia, corpus, model, tasks, finetune, interpretation: blocks of params.yaml.

    Raises:
        PipelineError: the model cannot be opened, is not of the study's architecture, or a file cannot be read.
    """
    study = Study(
        seed, interpretation, tuple(wikipedia.parts), corpus.validation, tasks,
        Path(finetune.model), model.positions_start,
    )  # fmt: skip
    check_architecture(study.model.config, model.architecture, study.folder)
    write_measures(study, INTERPRETATION)


def write_measures(study: Study, folder: Path) -> None:
    """Measure a model and write ``folder``; errors as in :func:`run`."""
    torch.set_num_threads(1)  # sums are in one order, whatever the machine
    skipped: dict[str, str] = {}
    with atomic_directory(folder) as out:
        for name, measure in MEASURES.items():
            log.info("measuring %s", name)
            found, reasons = measure(study)
            skipped |= reasons
            write_json(out / f"{name}.json", found)
        config = study.model.config
        sizes = {
            "layers": len(study.model.states([[]])[0]) - 1,
            "width": config.hidden_size,
            "heads": config.num_attention_heads if study.model.attends else 0,
        }
        write_json(out / "contents.json", {"model": {"title": config.names.title, **sizes}, "skipped": skipped})
    for name, reason in skipped.items():
        log.info("%s left out: %s", name, reason)


Found = tuple[dict[str, Any], dict[str, str]]  # what is written, and what is missing with the reason


def _together(parts: dict[str, Callable[[], Any]]) -> Found:
    """What each part gives, by its name; those that are skipped or give None apart."""
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


def _probes(study: Study) -> Found:
    def tags(task: str) -> Any:
        labels, train, test = study.tagged[task]
        return probe_tags(study.model, study.control, train, test, labels, study.seed)

    def of_capitals() -> Any:
        normaliser = study.model.tokenizer.normalizer
        if normaliser is None or normaliser.normalize_str("A") == "A":
            raise Skipped("the model sees capitals")
        return probe_capitals(study.model, study.control, *study.texts, study.seed)

    def alike() -> Any:
        sentences = study.texts[0].sentences
        return {
            "model": self_similarity(study.model, sentences, study.seed),
            "random": self_similarity(study.control, sentences, study.seed),
        }

    found, reasons = _together(
        {task: lambda task=task: tags(task) for task in study.tagged}
        | {"capitals": of_capitals, "self-similarity": alike}
    )
    return found, reasons | study.untagged


def _senses(study: Study) -> Found:
    def homographs(task: str) -> Any:
        test = study.tagged[task][2]
        found, random = (told_apart(each, test) for each in (study.model, study.control))
        return None if found is None or random is None else found | {"random": random["accuracy"]}

    return _together(
        {
            "two contexts": lambda: in_two_contexts(study.model, study.control, study.contexts, study.seed),
            "two sources": lambda: in_two_contexts(
                study.model, study.control, words_of_two_sources(study.texts[0]), study.seed
            ),
        }
        | {f"homographs of {task}": lambda task=task: homographs(task) for task in study.tagged}
    )


def _heads(study: Study) -> Found:
    def roles() -> Any:
        if not study.params.sentences:
            raise Skipped("interpretation.sentences is 0")
        sentences = study.texts[1].sentences[: study.params.sentences]
        return head_roles(study.model, sentences) | {"random": head_roles(study.control, sentences)["roles"]}

    return _together(
        {
            "roles": roles,
            "relations": lambda: relations(study.model, study.control, study.trees, study.seed),
            "structure": lambda: structure(study.model, study.control, study.trees, study.seed),
        }
    )


def _pairs(study: Study) -> Found:
    wanted = study.params.minimal_pairs

    def judged(pairs: Callable[[], Any], title: str) -> Any:
        if study.model.lacks:
            raise Skipped(study.model.lacks)
        found = judge(study.model, study.control, pairs(), study.seed)
        return None if found is None else {"title": title, **found}

    sets: dict[str, Callable[[], Any]] = {}
    if "templates" in wanted:
        for name, (title, pairs) in template_pairs().items():
            sets[name] = lambda pairs=pairs, title=title: judged(lambda: pairs, title)
    if "treebank" in wanted:
        sets["treebank"] = lambda: judged(lambda: treebank_pairs(study.trees), "subject and verb in a treebank")
    found, reasons = _together(sets)
    for name in study.params.pair_sets:
        if study.model.lacks:
            reasons[name] = study.model.lacks
        else:
            published = read_pair_set(TASKS / name, study.seed)
            found |= judge_pair_set(study.model, study.control, published, name, study.seed)
    return found, reasons if wanted else {"minimal pairs": "interpretation.minimal_pairs is empty"}


def _completion(study: Study) -> Found:
    def texts() -> Any:
        if not study.params.prompts:
            raise Skipped("interpretation.prompts is empty")
        return completions(study.model, study.params.prompts, MASKS, study.seed)

    def masks() -> Any:
        if not study.params.masks:
            raise Skipped("interpretation.masks is empty")
        return filled(study.model, study.params.masks)

    def loss() -> Any:
        train, test = (cut_words(study.model, part.sentences).ids for part in study.texts)
        flat = np.concatenate([np.asarray(text, np.int64) for text in train])
        counts = np.bincount(flat, minlength=study.model.tokenizer.get_vocab_size())
        return loss_by_masks(study.model, test, counts, study.seed)

    return _together({"completions": texts, "filled masks": masks, "loss by masks": loss})


def _sentences(study: Study) -> Found:
    def shown() -> Any:
        named = [Sentence(words_of(text), text) for text in study.params.shown]
        return shown_sentences(study.model, named or chosen_sentences(study.model, study.texts[1].sentences)) or None

    return _together({"attention": shown})


def _checkpoints(study: Study) -> Found:
    def by_step() -> Any:
        ours = PRETRAINED.glob("*/steps/*") if study.folder.parent == PRETRAINED else ()
        kept = sorted(ours, key=lambda path: int(path.name))
        if not kept:
            raise Skipped("pretrain.keep_steps keeps no models of this one")
        contexts, _ = _together({"given": lambda: study.contexts})
        if not contexts and not study.tagged:
            raise Skipped("there are no words in two senses, and no tags")
        rows: list[dict[str, Any]] = []
        for path in kept:
            model = StudiedModel.open(path)
            rows.append({"step": int(path.name)})
            if contexts:
                told = in_two_contexts(model, study.control, contexts["given"], study.seed)
                rows[-1]["two contexts"] = told["accuracy"]
            for task, (labels, train, test) in study.tagged.items():
                rows[-1][task] = tags_by_layer(model, train, test, labels, study.seed)
        return rows

    return _together({"checkpoints": by_step})


MEASURES: dict[str, Callable[[Study], Found]] = {  # by the name of its file
    "probes": _probes,
    "senses": _senses,
    "heads": _heads,
    "pairs": _pairs,
    "completion": _completion,
    "sentences": _sentences,
    "checkpoints": _checkpoints,
}
