"""A task's data files as cached features, and batches of these features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from pipeline_src.base.counter_rng import derive_seed
from pipeline_src.base.files import hash_file
from pipeline_src.base.paths import TASKS
from pipeline_src.engine.fingerprint import fingerprint
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.flops import Workload
from pipeline_src.study.task_spec import TaskSpec
from pipeline_src.tasks.classification import Classification
from pipeline_src.tasks.examples import labelled_part
from pipeline_src.tasks.feature_cache import cached
from pipeline_src.tasks.features import NO_TAG, Features
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.task import Task
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.training.batches import split_balanced, split_greedy

AUGMENTATION = "pipeline_src.finetune.augmentation"
# Training items are sorted by length within pools of this many batches.
POOL = 16


@dataclass(frozen=True)
class EvalSet:
    name: str
    examples: Sequence[Any]
    features: Features


@dataclass
class TaskData:
    """The data files of a task, tokenised for an encoder.

    Attributes:
        encoder: folder of the encoder, which has the tokenizer.
        max_length: maximum number of tokens in a sequence.
        apart: whether a pair of texts becomes two sequences, one for each text.
        window_stride: as in ``TaskSettings``.
        counts: file -> reason -> number of dropped or truncated examples, for the files that were read so far.
    """

    spec: TaskSpec
    encoder: Path
    max_length: int
    apart: bool = False
    window_stride: int | None = None

    def __post_init__(self) -> None:
        self.task = make_task(self.spec)
        self.folder = TASKS / self.spec.name
        self.counts: dict[str, dict[str, int]] = {}
        self._checksums: dict[str, str] = {}

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.encoder)

    def training(self) -> Features:
        def make(counts: Counter[str]) -> Features:
            return self._make(self._read(self.spec.train, None, False, counts))

        return self._features(self.spec.train, None, False, make)

    @cached_property
    def _training_examples(self) -> Sequence[Any]:
        return self._read(self.spec.train, None, False, Counter())

    @property
    def num_training_examples(self) -> int:
        return len(self._training_examples)

    def training_part(self, count: int, seed: str) -> Features:
        return self._make(labelled_part(self.spec.name, seed, self._training_examples, count))

    def augmented(self, make: Callable[[Features], Features], key: Mapping[str, Any]) -> Features:
        # `key`: JSON values that determine the augmented features. The cache key also includes the augmentation code.
        key = {**self._key(self.spec.train, None, False), **key, "code": fingerprint(AUGMENTATION)}
        return cached(self.spec.name, key, lambda dropped: make(self.training()))

    def eval_set(self, name: str, test: bool = False) -> EvalSet:
        spec = self.spec.scores[name]
        dropped: Counter[str] = Counter()
        file = spec.test.file if test and spec.test else spec.file
        examples = self._read(file, name, test, dropped)

        def make(counts: Counter[str]) -> Features:
            counts.update(dropped)
            return self._make(examples)

        return EvalSet(name, examples, self._features(file, name, test, make))

    def eval_sets_with_test_file(self) -> list[str]:
        scores = self.spec.scores
        return [name for name, score in scores.items() if score.test and (self.folder / score.test.file).exists()]

    def checksums(self) -> dict[str, str]:
        # Returns file name -> checksum, for the training file and the files of the evaluation sets, but not test files.
        files = [self.spec.train]
        for eval_set in self.spec.scores.values():
            files += eval_set.files
        return {file: self._checksum(file)[:16] for file in files}

    def _checksum(self, file: str) -> str:
        if file not in self._checksums:
            self._checksums[file] = hash_file(self.folder / file)
        return self._checksums[file]

    def _read(self, file: str, eval_set: str | None, test: bool, dropped: Counter[str]) -> Sequence[Any]:
        return self.task.read(self.folder / file, eval_set, test, dropped)

    def _features(
        self, file: str, eval_set: str | None, test: bool, make: Callable[[Counter[str]], Features]
    ) -> Features:
        features = cached(self.spec.name, self._key(file, eval_set, test), make)
        self.counts[file] = dict(features.counts)
        return features

    def _make(self, examples: Sequence[Any]) -> Features:
        return make_features(self.task, examples, self.tokenizer, self.max_length, self.apart, self.window_stride)

    def _key(self, file: str, eval_set: str | None, test: bool) -> dict[str, Any]:
        return {
            "task": self.spec.model_dump(mode="json"),
            "eval_set": eval_set,
            "test": test,
            "file": self._checksum(file),
            "corpus": [self._checksum(file) for file in self.spec.scores[eval_set].files[1:]] if eval_set else [],
            "tokenizer": hash_file(self.encoder / "tokenizer.json"),
            "max_length": self.max_length,
            "apart": self.apart,
            "window_stride": self.window_stride,
        }


def make_features(
    task: Task,
    examples: Sequence[Any],
    tokenizer: Tokenizer,
    max_length: int,
    apart: bool,
    window_stride: int | None,
) -> Features:
    # `apart` and `window_stride` as in TaskData.
    if window_stride is not None:
        assert isinstance(task, Classification)
        return task.features_in_windows(examples, tokenizer, max_length, window_stride)
    if apart:
        assert isinstance(task, Classification)
        return task.features_apart(examples, tokenizer, max_length)
    return task.features(examples, tokenizer, max_length)


@dataclass(frozen=True)
class TaskBatch:
    """Tensors of a batch: ids, segments [T], cu_seqlens [B + 1] as in ``model.bert.Bert``, and labels.

    Attributes:
        losses: number of terms in the loss, which is a mean.
        lengths: number of tokens in each sequence, int64 [B]. It stays in CPU memory, so that reading it does not wait
            for the GPU.
        examples: indices of the batch's items in the features.
        class_weights: weight of each class in the loss, float32 [classes]; None if all classes have equal weight. The
            mean weight over the labels of the whole batch is 1, of which this may be a microbatch.
        windows: where each item's windows begin among the B sequences, with B at the end, int64 [items + 1]; None if
            no text is read in windows.
    """

    ids: Tensor
    segments: Tensor
    cu_seqlens: Tensor
    labels: Tensor
    losses: int
    lengths: np.ndarray
    examples: np.ndarray
    class_weights: Tensor | None = None
    windows: Tensor | None = None

    @property
    def workload(self) -> Workload:
        # Each term of the loss counts as one prediction.
        sum_len_squared = int(np.square(self.lengths).sum())
        return Workload(len(self.lengths), len(self.ids), sum_len_squared, predictions=self.losses)

    @property
    def layout(self) -> PackedBatch:
        return PackedBatch.of(self.cu_seqlens, len(self.ids), int(self.lengths.max()))


def balanced_class_weights(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the weight n / (k n_c) of each class c, like scikit-learn's ``compute_class_weight("balanced")``.

    n is the number of labels, k the number of classes that occur, and n_c the number of labels of class c. A class that
    does not occur has weight 0.
    """
    labels = labels[labels != NO_TAG]
    counts = np.bincount(labels, minlength=num_classes)
    shares = counts * np.count_nonzero(counts) / len(labels)
    return np.divide(1, shares, out=np.zeros(num_classes), where=counts > 0)


def _with_mean_1(class_weights: np.ndarray, labels: np.ndarray) -> Tensor:
    # Scales the weights so that their mean over the labels of a batch is 1. The loss of the batch then equals torch's
    # weighted mean.
    of_labels = class_weights[labels[labels != NO_TAG]]
    return torch.from_numpy((class_weights / of_labels.mean()).astype(np.float32))


def make_batch(features: Features, items: np.ndarray, class_weights: Tensor | None = None) -> TaskBatch:
    # Returns a batch in CPU memory, with sequences in the order of `items` (int64 indices).
    positions, cu_seqlens = features.tokens_of(items)
    labels = features.labels_of(items)
    windows = features.windows_of(items)
    return TaskBatch(
        torch.from_numpy(features.ids[positions].astype(np.int64)),
        torch.from_numpy(features.segments[positions].astype(np.int64)),
        torch.from_numpy(cu_seqlens),
        torch.from_numpy(np.ascontiguousarray(labels)),
        features.loss_count(labels),
        np.diff(cu_seqlens),
        items,
        class_weights,
        None if windows is None else torch.from_numpy(windows),
    )


def training_batches(
    features: Features,
    batch: int,
    epochs: int,
    seed: int,
    microbatch_tokens: int | None,
    done: int = 0,
    class_weights: np.ndarray | None = None,
) -> Iterator[list[TaskBatch]]:
    """Yield training batches, each as a list of microbatches.

    Every item occurs once per epoch, in an order that depends on ``seed`` and the epoch. Each pool of POOL batches is
    sorted by length, so that a batch has items of similar length. Then the batches of the pool are shuffled. One batch
    of an epoch may be smaller than the others.

    Args:
        batch: number of items in a batch.
        microbatch_tokens: maximum number of tokens in a microbatch; None if batches are not split.
        done: number of batches to skip at the start, for resuming.
    """
    per_epoch = -(-features.items // batch)
    for epoch in range(done // per_epoch, epochs):
        done_in_epoch = max(0, done - epoch * per_epoch)
        for items in epoch_order(features, batch, seed, epoch)[done_in_epoch:]:
            scaled = None
            if class_weights is not None:
                scaled = _with_mean_1(class_weights, features.labels_of(items))
            parts = split_balanced(features.lengths[items], microbatch_tokens)
            yield [make_batch(features, items[part], scaled) for part in parts]


def epoch_order(features: Features, batch: int, seed: int, epoch: int) -> list[np.ndarray]:
    rng = np.random.Generator(np.random.Philox(key=derive_seed(seed, epoch)))
    order = rng.permutation(features.items)
    lengths = features.lengths
    pool_size = POOL * batch
    batches: list[np.ndarray] = []
    for first in range(0, len(order), pool_size):
        pool = order[first : first + pool_size]

        # Each batch gets items of similar length. The batches of the pool are shuffled.
        by_length = pool[np.argsort(lengths[pool], kind="stable")]
        split = [by_length[start : start + batch] for start in range(0, len(pool), batch)]
        batches += [split[index] for index in rng.permutation(len(split))]
    return batches


def evaluation_batches(features: Features, tokens: int) -> Iterator[TaskBatch]:
    # Yields every item once, in order of decreasing length.
    order = np.argsort(-features.lengths, kind="stable")
    for chunk in split_greedy(features.lengths[order], tokens):
        yield make_batch(features, order[chunk])
