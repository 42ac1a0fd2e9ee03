"""Where BERT's marks stand, for tests that need no tokenizer."""

from pipeline_src.tokenizer.frame import Frame, Frames


def bert_frames(cls: int, sep: int) -> Frames:
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP] of these ids."""
    return Frames(Frame(((cls,), (sep,)), (0, 0, 0)), Frame(((cls,), (sep,), (sep,)), (0, 0, 0, 1, 1)))
