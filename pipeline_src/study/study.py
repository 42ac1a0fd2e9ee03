"""The complete params.yaml, validated as a whole before any stage starts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.names import shown
from pipeline_src.study.cross_checks import cross_checks
from pipeline_src.study.data import CorpusParams, ExamplesParams, VocabularyParams, WordVectorsParams
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.interpretation import InterpretationParams
from pipeline_src.study.model import ModelParams
from pipeline_src.study.pretrain import ObjectivesParams, PretrainParams
from pipeline_src.study.reading import check_block, read_yaml
from pipeline_src.study.schema import ListedOnce, Section


class Study(Section):
    """All settings that the results of a study depend on.

    Rules that involve several settings are in ``cross_checks``.

    Attributes:
        seed: main random seed. Each fine-tuning also has a seed of its own (``finetune.seeds``).
        mask_prob: fraction of tokens chosen for prediction; 0.15 in the paper (section 3.1). It is at the top level,
            so that ``dvc exp run -S mask_prob=0.2`` is short.
        task_source: ``synthetic``: generated tasks. ``official``: the published task files.
        tasks: names of entries of ``catalogue/tasks``.
    """

    seed: int = Field(ge=0, lt=2**31)
    mask_prob: float = Field(gt=0, lt=1)
    corpus: CorpusParams
    vocabulary: VocabularyParams
    examples: ExamplesParams
    word_vectors: WordVectorsParams
    model: ModelParams
    pretrain: PretrainParams
    objectives: ObjectivesParams
    task_source: Literal["synthetic", "official"]
    tasks: Annotated[tuple[str, ...], ListedOnce] = Field(min_length=1)
    finetune: FinetuneParams
    interpretation: InterpretationParams


def load_study(path: str | Path = "params.yaml") -> Study:
    return check_study(read_yaml(path), path)


def check_unchanged(started: Study, blocks: Iterable[str]) -> None:
    """Raise an error if sections (``blocks``) of params.yaml were edited since the stage started.

    DVC reads the values only after the stage has ended, so it would record values that the stage did not use.
    """
    before, now = (study.model_dump(exclude_unset=True) for study in (started, load_study()))
    changed = [block for block in blocks if before[block] != now[block]]
    if changed:
        raise PipelineError(
            "params.yaml changed while the stage ran; the outputs are not recorded",
            ", ".join(changed),
            where="params.yaml",
            hint="check the edit (`git diff params.yaml`) and start again: the stage uses the new values",
        )


def check_study(raw: dict[str, Any], path: str | Path = "params.yaml") -> Study:
    study = check_block(Study, raw, path, complete=True)
    mismatch = next(cross_checks(study), None)
    if mismatch is None:
        return study
    key, hint = mismatch
    value: Any = raw
    for step in key.split("."):
        value = value.get(step)
    # The key may be absent from the recipe of a task, which then has the default.
    given = "" if value is None else f" = {shown(value)}"
    raise PipelineError("value does not fit the other settings", f"{key}{given}", where=path, hint=hint)
