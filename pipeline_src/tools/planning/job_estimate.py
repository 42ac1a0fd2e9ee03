"""What one job of a study reads, computes and writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobEstimate:
    """One job's amount of work.

    Attributes:
        stage: as ``python -m pipeline_src`` calls it.
        item: what the stage's matrix runs over, or ``all``.
        units: what its time grows with, counted in ``unit``; training goes by ``flops``.
        read, written: bytes.
        extra: bytes on disk beside what is written: what was unpacked from, checkpoints on the way.
        tokens: real ones that go through, or are drawn or made.
        flops: of training and predicting.
        slot_flops: the same as if every sequence were full, as papers count it.
        steps, width, inner, layers, entries: of training and its model.
        length: of the sequences that ``tokens`` are in: the sum of squared lengths over their sum.
        predictions: predicted tokens.
        rows: tokens of which what the last block makes is read; 0 where all are.
        parameters: that are trained; 0 counts those of BERT of these sizes.
        over_bert: FLOPs over those of BERT of these sizes.
    """

    stage: str
    item: str
    units: float = 0.0
    unit: str = "B"
    read: float = 0.0
    written: float = 0.0
    extra: float = 0.0
    tokens: float = 0.0
    flops: float = 0.0
    slot_flops: float = 0.0
    steps: int = 0
    width: int = 0
    inner: int = 0
    layers: int = 0
    entries: int = 0
    length: float = 0.0
    predictions: float = 0.0
    rows: float = 0.0
    parameters: int = 0
    over_bert: float = 1.0
