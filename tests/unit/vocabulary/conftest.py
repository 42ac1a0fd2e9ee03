import pytest

from pipeline_src.vocabulary.counting import count_words
from pipeline_src.vocabulary.learn import learn_vocabulary

TEXT = [
    "the river ran through the old town and the new town",
    "an older river, a newer town; the oldest walls were walls of the river",
    "walls, towns, rivers: the newest are not the oldest; Ångström's café, 北京",
]


@pytest.fixture(scope="session")
def pieces() -> list[str]:
    """A small vocabulary with merges, accents (in the cased text) and two Chinese characters."""
    return learn_vocabulary(count_words(TEXT, lowercase=False), 140, alphabet=60, min_count=1)
