"""Translate parameter names and config keys between this project and Hugging Face's checkpoints.

Each architecture defines a ``StateDictAdapter`` in its own file. BERT's is in this file, because other architectures
build on it. This project's parameter names are those of Hugging Face's BertForPreTraining, for every architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Pairs of (regular expression, replacement), applied in order.
Rules = tuple[tuple[str, str], ...]

# Prefixes of this project's parameter names.
ENCODER = ("bert.embeddings.", "bert.encoder.")
POOLER = "bert.pooler."
MLM_HEAD = "cls.predictions."
NEXT_SENTENCE = "cls.seq_relationship."

# RoBERTa and ELECTRA classify with two layers. The first of them is loaded as this project's pooler.
TWO_LAYERS_LOADED: Rules = (
    (r"^classifier\.dense\.", "bert.pooler.dense."),
    (r"^classifier\.out_proj\.", "classifier."),
)
TWO_LAYERS_SAVED: Rules = ((r"^classifier\.", "classifier.out_proj."), (r"^bert\.pooler\.dense\.", "classifier.dense."))

# Use of a model -> Hugging Face's pipeline tag.
PIPELINES = {
    "pretraining": "fill-mask",
    "masked_lm": "fill-mask",
    "causal_lm": "text-generation",
    "encoder": "feature-extraction",
    "sequence": "text-classification",
    "choice": "multiple-choice",
    "span": "question-answering",
    "token": "token-classification",
}
# Activation names: transformers -> this project.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
# Activation names: this project -> transformers.
SAVED_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}

OUTPUT_LAYERS = {"sequence": "classifier", "choice": "classifier", "span": "qa_outputs", "token": "classifier"}


def huggingface_classes(prefix: str, **suffixes: str) -> dict[str, str]:
    defaults = {
        **dict.fromkeys(("pretraining", "masked_lm"), "ForMaskedLM"),
        **dict.fromkeys(("next_sentence", "encoder"), "Model"),
        **{"sequence": "ForSequenceClassification", "choice": "ForMultipleChoice"},
        **{"span": "ForQuestionAnswering", "token": "ForTokenClassification"},
    }
    return {use: f"{prefix}{suffix}" for use, suffix in (defaults | suffixes).items()}


@dataclass(frozen=True)
class StateDictAdapter:
    """How one architecture's parameters, config keys and classes are named by Hugging Face.

    "Our" names are this project's.

    Attributes:
        model_type: Hugging Face's ``model_type``. The architecture's folder has this name, with ``_`` instead of ``-``.
        classes: use of a model ("pretraining", "sequence") -> name of Hugging Face's class.
        in_transformers: whether these classes load the model.
        output_layers: kind of task -> parameter name of its output layer.
        keys: our config key -> Hugging Face's config key, where the two differ.
        written: constant entries of the exported ``config.json``.
        absent: key that ``config.json`` may lack -> transformers' default, where it differs from our default.
        fixed: key of ``config.json`` -> supported values. The first value is the default, unless ``absent`` has one.
        from_hf: rules that turn Hugging Face's parameter names, of any class and version, into ours.
        to_hf: rules that turn our parameter names into Hugging Face's.
        from_hf_tasks, to_hf_tasks: use of a model -> rules that run before ``from_hf`` and ``to_hf`` for its class.
        buffers: regular expression for names of stored tensors that are not parameters.
        tied: our names of two tied matrices. The first is not stored.
    """

    model_type: str
    title: str
    paper: str
    classes: Mapping[str, str]
    in_transformers: bool = True
    output_layers: Mapping[str, str] = field(default_factory=lambda: OUTPUT_LAYERS)
    keys: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, object] = field(default_factory=dict)
    absent: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    from_hf: Rules = ()
    to_hf: Rules = ()
    from_hf_tasks: Mapping[str, Rules] = field(default_factory=dict)
    to_hf_tasks: Mapping[str, Rules] = field(default_factory=dict)
    # transformers before 4.31 saved the position numbers 0, 1, 2, ... as a buffer.
    buffers: str = r"\.position_ids$"
    tied: tuple[str, str] = ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight")

    def pipeline(self, huggingface_class: str) -> str | None:
        uses = [use for use, known in self.classes.items() if known == huggingface_class]
        return next((PIPELINES[use] for use in uses if use in PIPELINES), None)

    def to_hf_name(self, name: str, huggingface_class: str) -> str:
        return rename(name, (*self._of_class(self.to_hf_tasks, huggingface_class), *self.to_hf))

    def from_hf_name(self, name: str, huggingface_class: str | None) -> str:
        return rename(name, (*self._of_class(self.from_hf_tasks, huggingface_class), *self.from_hf))

    def _of_class(self, tasks: Mapping[str, Rules], huggingface_class: str | None) -> Rules:
        return next((rules for use, rules in tasks.items() if self.classes[use] == huggingface_class), ())


BERT = StateDictAdapter(
    model_type="bert",
    title="BERT",
    paper=(
        "Devlin et al. 2018, [BERT: Pre-training of Deep Bidirectional Transformers](https://arxiv.org/abs/1810.04805)"
    ),
    classes=huggingface_classes(
        "Bert", pretraining="ForPreTraining", next_sentence="ForNextSentencePrediction", causal_lm="LMHeadModel"
    ),
    fixed={"position_embedding_type": ("absolute", None), "add_cross_attention": (False,)},
    from_hf=(
        # The first PyTorch releases of BERT called LayerNorm's weight "gamma" and its bias "beta".
        (r"\.gamma$", ".weight"),
        (r"\.beta$", ".bias"),
        # Checkpoints of the class BertModel have no "bert." prefix.
        (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),
        # Hugging Face's checkpoints store the decoder's bias under either name.
        (r"^cls\.predictions\.bias$", "cls.predictions.decoder.bias"),
    ),
    to_hf=((r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),),
)


def rename(name: str, rules: Rules) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
