"""RoBERTa (Liu et al. 2019): BERT without token types, with positions that start after the padding id."""

from pipeline_src.base.registry import ArchitectureSpec

# fairseq draws a random token from its dictionary without the special symbols (data/mask_tokens_dataset.py).
ARCHITECTURES = {"roberta": ArchitectureSpec(special_replacements=False)}
