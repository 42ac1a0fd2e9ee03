"""The tool ``dropped``: counts of every stage that has run, and texts to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_src.__main__ import main
from pipeline_src.common.files import write_json
from pipeline_src.corpus.documents import Document
from pipeline_src.corpus.dropped import DroppedSample

TEXT = f"The first line.\nThe second line {'goes on and on ' * 40}to its end."


def make(folder: Path, drops: dict[str, tuple[int, object, float | None]]) -> None:
    """An output folder with some drops of each reason: number, value and limit."""
    folder.mkdir(parents=True)
    sample = DroppedSample()
    for reason, (count, value, limit) in drops.items():
        for number in range(count):
            sample.add(reason, Document(f"a:{reason}-{number}", f"Title {number}", TEXT), value, limit)
    sample.write(folder)
    write_json(folder / "manifest.json", {"dropped": {reason: 100 * count for reason, (count, *_) in drops.items()}})


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample study's parameters, and nothing made."""
    root = Path(__file__).resolve().parents[3]
    for name in ("params.yaml", "catalogue"):
        (tmp_path / name).symlink_to(root / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_dropped_before_cleaning_is_rejected(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dropped"]) == 2
    assert "nothing is cleaned yet" in capsys.readouterr().err


def test_dropped_prints_no_control_codes(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study / "data/text/books/clean-text"
    make(folder, {})
    sample = DroppedSample()
    sample.add("duplicate", Document("a:\x1b[2J", "\x1b]0;t\x07", "The \x9b2Jtext."), "a:1", None)
    sample.write(folder)
    write_json(folder / "manifest.json", {"dropped": {"duplicate": 1}})
    assert main(["dropped"]) == 0
    assert all(letter.isprintable() for letter in capsys.readouterr().out.replace("\n", ""))


def test_dropped_prints_counts_and_texts(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(study / "data/text/books/clean-text", {"too_short": (3, 12, 200), "duplicate": (1, "books:x", None)})
    assert main(["dropped"]) == 0
    output = capsys.readouterr().out
    lines = output.split("\n")
    assert [line.split() for line in lines[:2]] == [["books", "duplicate", "100"], ["books", "too_short", "300"]]
    assert lines[2:4] == ["reviews: not made yet", "wikipedia: not made yet"]
    heading = "books: duplicate: a:duplicate-0 (Title 0) was dropped; books:x, which comes before it, stayed"
    assert f"{heading}\n    The first line.\n    The second line" in output
    assert output.count("too_short = 12, limit 200: a:too_short-") == 1
    assert "to its end" not in output  # the start alone

    make(study / "data/tokens", {"text_of_an_evaluation_set": (1, "squad1: Once", None)})
    assert main(["dropped", "--reason", "too_short", "--limit", "2"]) == 0
    output = capsys.readouterr().out
    assert "tokenize  text_of_an_evaluation_set" in output
    assert output.count("(Title ") == output.count("to its end") == 2
    assert main(["dropped", "--reason", "text_of_an_evaluation_set"]) == 0
    assert "text_of_an_evaluation_set: squad1: Once: a:" in capsys.readouterr().out


def test_dropped_unknown_reason_is_rejected(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(study / "data/text/books/clean-text", {"too_short": (1, 0.123456, 0.2)})
    assert main(["dropped", "--reason", "short"]) == 2
    assert "give one of too_short" in capsys.readouterr().err
    assert main(["dropped", "--reason", "too_short"]) == 0
    assert "too_short = 0.123, limit 0.2" in capsys.readouterr().out


def test_dropped_without_drops_says_so(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(study / "data/text/books/clean-text", {})
    assert main(["dropped"]) == 0
    assert capsys.readouterr().out.startswith("nothing was dropped\n")


def test_dropped_missing_record_is_rejected(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(study / "data/text/books/clean-text", {})
    (study / "data/text/books/clean-text/dropped.jsonl").unlink()
    assert main(["dropped"]) == 2
    assert "no record of dropped documents" in capsys.readouterr().err
