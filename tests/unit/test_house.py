"""The tree holds no more code than tests/house.tsv says, and writes it no more densely."""

from __future__ import annotations

from collections import Counter

from tests.house import count_file, count_tree, read_table

PACKED = '''
def packed(rows, keys):
    """A docstring, which does not count."""
    first = [row[key] for row in rows for key in keys if key in row and row[key] is not None and row[key] != 0]
    second = {key: [row.get(key) for row in rows if row.get(key) not in (None, 0, "")] for key in keys if key}
    third = {key: sum(value or 0 for value in values) / max(1, len(values)) for key, values in second.items()}
    fourth = sorted((value, key) for key, value in third.items() if value > 0 and key in keys and key not in first)
    fifth = [(key, value * 2 + 1) for value, key in fourth if value * 2 + 1 > len(first) and key != keys[0]]
    sixth = dict(fifth) | {key: third[key] for key in third if key not in dict(fifth) and third[key] < 10}
    return first, second, third, fourth, fifth, sixth, [item for item in sixth.items() if item[1] is not None]
'''


def test_house_code_size_is_within_recorded_limits():
    counts, recorded = count_tree(), read_table()
    risen = {
        name: f"{count:,} > {recorded.get(name, 0):,}"
        for name, count in counts.items()
        if count > recorded.get(name, 0)
    }
    assert not risen, "take something out, or record it: python -m tests.house > tests/house.tsv"


def test_dense_function_and_nested_comprehension_are_counted():
    counts: Counter[str] = Counter()
    count_file(PACKED, "pipeline_src/x", counts)
    assert counts["dense functions"] == 1 and counts["docstrings"] == 1
    assert counts["comprehensions inside another"] == 2


def test_docstring_and_layout_change_no_count():
    one: Counter[str] = Counter()
    two: Counter[str] = Counter()
    count_file(PACKED, "tests", one)
    count_file(
        PACKED.replace("    first = ", "    # a reason\n\n    first = ").replace("A docstring,", "A docstring\n\n"),
        "tests",
        two,
    )
    assert one == two
