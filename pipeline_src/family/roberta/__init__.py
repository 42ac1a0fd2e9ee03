"""RoBERTa (Liu et al. 2019): BERT without token types, with positions that start after the padding id."""

from pipeline_src.base.registry import ArchitectureSpec

# As in fairseq (data/mask_tokens_dataset.py), a masked token is never replaced by a special token.
ARCHITECTURES = {"roberta": ArchitectureSpec(special_replacements=False)}
