"""The encoders of the family: what a file in ``architectures/`` must give, and how it is loaded by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.members import load_member
from pipeline_src.models.bert import Bert, BertConfig
from pipeline_src.models.names import Names
from pipeline_src.models.undrawn import undrawn


@dataclass(frozen=True)
class Architecture:
    """What a file in ``architectures/`` gives under the name ``ARCHITECTURE``.

    Attributes:
        config: class of its config. It makes one of params.yaml (``from_params``), counts the arithmetic of training
            (``training_flops``), and says what the encoder and its parts are called elsewhere (``names``).
        encoder: class of the encoder; it takes a config and nothing else. Its parts are class attributes.
    """

    config: type[BertConfig]
    encoder: type[Bert]

    @property
    def names(self) -> Names:
        """What the encoder and its parts are called elsewhere."""
        return self.config.names

    def parameters(self, config: BertConfig) -> int:
        """Parameters of the encoder: embeddings, blocks and pooler. No memory is taken for them."""
        with undrawn():
            return sum(parameter.numel() for parameter in self.encoder(config).parameters())


def load_architecture(name: str) -> Architecture:
    """The architecture in ``architectures/<name>.py``.

    Raises:
        PipelineError: there is no such file.
    """
    architecture: Architecture = load_member("architectures", name)
    return architecture


def file_of(model_type: str) -> str:
    """The name by which the architecture with this ``model_type`` is loaded."""
    return model_type.replace("-", "_")


def check_architecture(config: BertConfig, wanted: str, folder: Path) -> None:
    """Fail where an encoder is not of the study's architecture: a stage depends on that one's code alone.

    Args:
        config: of the encoder.
        wanted: ``model.architecture``.
        folder: of the encoder, for the error.

    Raises:
        PipelineError: so it is.
    """
    own = file_of(config.names.model_type)
    if own != wanted:
        raise PipelineError(
            "the encoder is of another architecture than the study's", f"{own}, not {wanted}",
            where=folder, remedy=f"set model.architecture to {own}, or finetune.model to another folder",
        )  # fmt: skip


def make_encoder(config: BertConfig) -> Bert:
    """The encoder that ``config`` describes, of its own architecture."""
    return load_architecture(file_of(config.names.model_type)).encoder(config)
