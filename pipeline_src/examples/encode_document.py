"""Encode a document sentence by sentence, as the token store has it."""

from __future__ import annotations

import numpy as np

from pipeline_src.text.sentences import split_sentences
from pipeline_src.text.words import is_unspaced
from pipeline_src.tokenizer.encode import Encoder


def encode_document(encoder: Encoder, text: str, language: str) -> tuple[list[str], list[bytes]]:
    """Return the sentences of a document that have tokens, and their ids as ``Encoder.encode_bytes`` returns them.

    A sentence begins with a space if the encoder needs one there.
    """
    sentences: list[str] = []
    encoded: list[bytes] = []
    for line in text.split("\n"):
        for sentence in split_sentences(line, language):
            # In the document, a space separates the sentence from the one before it.
            if encoded and encoder.lacks_prefix_space and not is_unspaced(sentence[0]):
                sentence = f" {sentence}"
            ids = encoder.encode_bytes(sentence)
            if ids:
                sentences.append(sentence)
                encoded.append(ids)
    return sentences, encoded


def document_ids(encoder: Encoder, text: str, language: str) -> np.ndarray:
    _, encoded = encode_document(encoder, text, language)
    return np.frombuffer(b"".join(encoded), encoder.id_type)
