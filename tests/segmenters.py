"""Segmenters for tests, named in params.yaml as ``tests.segmenters:FUNCTION``."""


def in_twos(text: str) -> list[str]:
    """Words of two letters each."""
    letters = "".join(text.split())
    return [letters[start : start + 2] for start in range(0, len(letters), 2)]
