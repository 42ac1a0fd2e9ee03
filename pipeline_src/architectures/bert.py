"""BERT (Devlin et al. 2018, section 3): the encoder of ``models/bert.py`` as it stands."""

from __future__ import annotations

from pipeline_src.models.architecture import Architecture
from pipeline_src.models.bert import Bert, BertConfig

BY_FORMULA = True  # `plan` counts it by its sizes, without torch

ARCHITECTURE = Architecture(config=BertConfig, encoder=Bert)
