"""RoBERTa (Liu et al. 2019): BERT without token types, with positions that start after the padding id."""

from pipeline_src.base.registry import ArchitectureSpec

ARCHITECTURES = {"roberta": ArchitectureSpec(special_replacements=False)}
