"""How many steps of one study's pretraining cost what another's does, by credited floating-point operations."""

from __future__ import annotations

from typing import Any

from pipeline_src.params.study import Study
from pipeline_src.tools.planning.counted import make_objective, predicted_share


def equal_steps(changed: Study, study: Study) -> dict[str, Any]:
    """Steps and warm-up for ``changed``, as changes of params.yaml, so that it costs what ``study`` does.

    Sequences count as full in both; all keep their shares of the whole. Where ``changed`` learns from a folder that is
    not there yet, that stands for a copy of the study's own model.

    Raises:
        PipelineError: no such architecture or objective.
    """
    factor = flops(study) / flops(changed, teacher=study)
    pretrain = changed.pretrain
    least = {phase: min(1, steps) for phase, steps in pretrain.steps}  # a phase that is left out stays so
    return {
        "pretrain.steps.short": max(least["short"], round(pretrain.steps.short * factor)),
        "pretrain.steps.long": max(least["long"], round(pretrain.steps.long * factor)),
        "pretrain.warmup": round(pretrain.warmup * factor),
    }


def flops(study: Study, teacher: Study | None = None) -> float:
    """Of both phases, of every model that the objective trains or asks; no memory is taken for them.

    What it took to train a teacher is not counted: it is given.

    Args:
        study: what is counted.
        teacher: whose model its teacher is, where the folder of that is not there; else itself.

    Raises:
        PipelineError: no such architecture or objective.
    """
    from pipeline_src.models.flops import Workload

    learning, share = make_objective(study, teacher or study), predicted_share(study)
    total, batch = 0.0, study.pretrain.batch
    for phase in ("short", "long"):
        length, steps = getattr(study.examples.lengths, phase), getattr(study.pretrain.steps, phase)
        tokens, predictions = batch * length, round(share * batch * length)
        rows = tokens if learning.causal else min(tokens, predictions + batch)
        work = Workload(batch, tokens, tokens * length, predictions, rows, rows * length)
        total += float(steps) * learning.training_flops(work)
    return total
