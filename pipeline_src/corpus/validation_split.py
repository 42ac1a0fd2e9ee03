"""Which documents no training stage may see: decided by the document's id alone, so any stage can ask."""

from __future__ import annotations

from hashlib import blake2b


def in_validation_split(document_id: str, seed: int, share: float) -> bool:
    """True for about ``share`` (0 to 1) of all ids, the same ones in any order, shard or machine."""
    digest = blake2b(document_id.encode(), digest_size=8, key=f"heldout {seed}".encode()).digest()
    return int.from_bytes(digest, "little") < share * 2**64
