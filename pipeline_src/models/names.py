"""What an encoder of the family is called elsewhere: by Hugging Face, in older files, and in Google's TensorFlow code.

One :class:`Names` per architecture, BERT's here and another's in its file in ``architectures/``. Within the project
parameters have one set of names, those of Hugging Face's BertForPreTraining, whatever the architecture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

Rules = tuple[tuple[str, str], ...]  # regular expression -> replacement, each applied in turn

# Starts of our names: what the parts of a model are called within the project.
ENCODER = ("bert.embeddings.", "bert.encoder.")
POOLER, MASKED_WORDS, NEXT_SENTENCE = "bert.pooler.", "cls.predictions.", "cls.seq_relationship."

# Of a sequence head of two layers, RoBERTa's and ELECTRA's: in a folder the first is no pooler, but part of it.
TWO_LAYERS_LOADED: Rules = (
    (r"^classifier\.dense\.", "bert.pooler.dense."),
    (r"^classifier\.out_proj\.", "classifier."),
)
TWO_LAYERS_SAVED: Rules = (
    (r"^classifier\.", "classifier.out_proj."),
    (r"^bert\.pooler\.dense\.", "classifier.dense."),
)

PIPELINES = {  # use of a model -> Hugging Face's kind of task, where it has one
    "pretraining": "fill-mask",
    "masked_words": "fill-mask",
    "left_to_right": "text-generation",
    "encoder": "feature-extraction",
    "sequence": "text-classification",
    "choice": "multiple-choice",
    "span": "question-answering",
    "token": "token-classification",
}
ACTIVATIONS = {  # transformers' names -> ours
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
SAVED_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}  # ours -> transformers'


@dataclass(frozen=True)
class Names:
    """The names of one architecture elsewhere.

    Attributes:
        model_type: Hugging Face's name in ``config.json``; with ``_`` for ``-`` it is the architecture's file.
        title: for people.
        paper: its citation, as Markdown.
        classes: use of a model, such as the keys of PIPELINES -> Hugging Face's class.
        output_layers: kind of task -> name of its output layer.
        keys: our name of a value in ``config.json`` -> that there, where they differ.
        written: key of ``config.json`` -> value; what transformers has to be told of this encoder and cannot differ.
        fixed: key of ``config.json`` -> the values this encoder can be; the first is the one meant where the key is
            missing.
        loaded: names in a folder, of any class and age -> ours.
        saved: ours -> names in a folder.
        loaded_tasks, saved_tasks: use of a model -> what comes before ``loaded`` and ``saved`` for its class alone.
        buffers: names in a folder that are no parameters.
        tied: our names of a matrix that is not stored, and of the one that it is.
        tensorflow: names in a checkpoint of Google's -> ours.
    """

    model_type: str
    title: str
    paper: str
    classes: Mapping[str, str]
    output_layers: Mapping[str, str]
    keys: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, object] = field(default_factory=dict)
    fixed: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    loaded: Rules = ()
    saved: Rules = ()
    loaded_tasks: Mapping[str, Rules] = field(default_factory=dict)
    saved_tasks: Mapping[str, Rules] = field(default_factory=dict)
    buffers: str = r"\.position_ids$"  # 0, 1, 2, ...: saved by transformers before 4.31
    tied: tuple[str, str] = ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight")
    tensorflow: Rules = ()

    def pipeline(self, huggingface_class: str) -> str | None:
        """Hugging Face's kind of task for one of its classes, where it has one."""
        uses = [use for use, known in self.classes.items() if known == huggingface_class]
        return next((PIPELINES[use] for use in uses if use in PIPELINES), None)

    def in_folder(self, name: str, huggingface_class: str) -> str:
        """What one of our parameters is called in a folder of that class."""
        return rename(name, (*self._of_class(self.saved_tasks, huggingface_class), *self.saved))

    def of_folder(self, name: str, huggingface_class: str | None) -> str:
        """Our name of what is called ``name`` in a folder of that class; None where nothing says which."""
        return rename(name, (*self._of_class(self.loaded_tasks, huggingface_class), *self.loaded))

    def _of_class(self, tasks: Mapping[str, Rules], huggingface_class: str | None) -> Rules:
        return next((rules for use, rules in tasks.items() if self.classes[use] == huggingface_class), ())


BERT = Names(
    model_type="bert",
    title="BERT",
    paper=(
        "Devlin et al. 2018, [BERT: Pre-training of Deep Bidirectional Transformers](https://arxiv.org/abs/1810.04805)"
    ),
    classes={
        "pretraining": "BertForPreTraining",
        "masked_words": "BertForMaskedLM",
        "next_sentence": "BertForNextSentencePrediction",
        "left_to_right": "BertLMHeadModel",
        "encoder": "BertModel",
        "sequence": "BertForSequenceClassification",
        "choice": "BertForMultipleChoice",
        "span": "BertForQuestionAnswering",
        "token": "BertForTokenClassification",
    },
    output_layers={"sequence": "classifier", "choice": "classifier", "span": "qa_outputs", "token": "classifier"},
    fixed={"position_embedding_type": ("absolute", None), "add_cross_attention": (False,)},
    loaded=(
        (r"\.gamma$", ".weight"),  # TensorFlow's names of LayerNorm's two, in the first PyTorch releases
        (r"\.beta$", ".bias"),
        (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),  # a BertModel has no prefix
        (r"^cls\.predictions\.bias$", "cls.predictions.decoder.bias"),  # two names of one tensor
    ),
    saved=((r"^cls\.predictions\.decoder\.bias$", "cls.predictions.bias"),),
    tensorflow=(  # of google-research/bert's modeling.py and run_pretraining.py
        (r"^cls/predictions/output_bias$", "cls/predictions/decoder/bias"),
        (r"^cls/seq_relationship/output_weights$", "cls/seq_relationship/weight"),
        (r"^cls/seq_relationship/output_bias$", "cls/seq_relationship/bias"),
        (r"_embeddings$", "_embeddings/weight"),
        (r"/layer_(\d+)/", r"/layer/\1/"),
        (r"/(kernel|gamma)$", "/weight"),
        (r"/beta$", "/bias"),
        (r"/", "."),
    ),
)


def rename(name: str, rules: Rules) -> str:
    """``name`` after each of ``rules`` in turn."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name
