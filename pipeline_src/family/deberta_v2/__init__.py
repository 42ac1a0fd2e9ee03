"""DeBERTa versions 2 and 3 (He et al. 2021; 2023): relative positions in buckets, projected by the content's layers."""

from pipeline_src.family import deberta

ARCHITECTURES = {"deberta_v2": deberta.ARCHITECTURES["deberta"]}
