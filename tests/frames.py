"""Where BERT's marks stand, for tests that need no tokenizer."""

from pipeline_src.tokenizer.special_tokens import Template, Templates


def bert_templates(cls: int, sep: int) -> Templates:
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP] of these ids."""
    return Templates(Template(((cls,), (sep,)), (0, 0, 0)), Template(((cls,), (sep,), (sep,)), (0, 0, 0, 1, 1)))
