"""Sizes: of downloads, out of dvc.lock (if the parameters are still those of the study), and on disk."""

from __future__ import annotations

from pathlib import Path

import yaml

from pipeline_src.common.yaml_files import SOURCES
from pipeline_src.config.study import Study
from pipeline_src.tools.planning.sizes import CorpusSizes, TaskSize, recorded_sizes, size_on_disk, task_size


def wheel(digit: str, size: int) -> dict[str, object]:
    tags = {"platforms": ["any"], "python_version": "3.11", "implementation": "py", "abi": "none"}
    return {"checksum": f"sha256:{digit * 64}", "bytes": size, **tags}


def test_a_wheel_is_fetched_whole_and_once(catalogue: Path, root: Path) -> None:
    wheels = {"a": wheel("a", 1000), "b": wheel("a", 1000), "c": wheel("c", 30)}
    files = [{"path": name, "url": f"pypi:x==1/{name}", "bytes": 5, "wheel": one} for name, one in wheels.items()]
    entry = {"description": "d", "licence": "l", "citation": "c", "files": files}
    (catalogue / "sources/mine.yaml").write_text(yaml.safe_dump(entry))
    study = Study(**yaml.safe_load((root / "workflow/presets/sample.yaml").read_text()))
    corpus = CorpusSizes(study, {}.get)
    assert corpus.download(SOURCES, "mine") == 1030
    assert corpus.download(SOURCES, "shakespeare-sample") == 2_061_715


def test_files_of_ones_own_are_measured_where_they_lie(catalogue: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_bytes(b"1" * 48_000)
    entry = {"description": "d", "licence": "l", "citation": "c"}
    entry |= {"files": [{"path": "one.tsv", "url": f"file:{tmp_path}/*.tsv"}]}
    for folder in ("sources", "task_sources"):
        (catalogue / f"{folder}/mine.yaml").write_text(yaml.safe_dump(entry))
    raw = yaml.safe_load((root / "workflow/presets/sample.yaml").read_text())
    raw["corpus"]["sources"]["books"]["from"] = "mine"
    study = Study(**raw)
    corpus = CorpusSizes(study, {}.get)
    assert corpus.raw("books") == 48_000 and not corpus.notes
    assert task_size(study, "mine", tmp_path / "nothing") == TaskSize(160, 40, 40)


LOCK = {
    "stages": {
        "books": {
            "params": {"params.yaml": {"books": {"source": "plays"}}},
            "outs": [{"path": "data/text/books", "size": 10}],
        },
        "vocabulary": {
            "deps": [{"path": "data/text/books"}, {"path": "pipeline_src/common/files.py"}],
            "params": {"params.yaml": {"seed": 1, "vocabulary.vocab_size": 100}},
            "outs": [{"path": "data/vocabulary", "size": 20}],
        },
        "pretrain": {
            "deps": [{"path": "data/vocabulary/vocab.txt"}],
            "outs": [{"path": "models/short", "size": 30}, {"path": "results/short.tsv"}],
        },
    }
}
PARAMS = {"seed": 1, "books": {"source": "plays"}, "vocabulary": {"vocab_size": 100, "other": 5}}


def sizes(tmp_path: Path, **changes: object) -> dict[str, int]:
    lock = tmp_path / "dvc.lock"
    lock.write_text(yaml.safe_dump(LOCK))
    return recorded_sizes(PARAMS | changes, lock)


def test_the_same_parameters_give_the_recorded_sizes(tmp_path: Path) -> None:
    assert sizes(tmp_path) == {"data/text/books": 10, "data/vocabulary": 20, "models/short": 30}


def test_another_parameter_leaves_only_what_lies_above_it(tmp_path: Path) -> None:
    assert sizes(tmp_path, vocabulary={"vocab_size": 200}) == {"data/text/books": 10}
    assert sizes(tmp_path, books={"source": "novels"}) == {}


def test_without_a_lock_nothing_is_known(tmp_path: Path) -> None:
    assert recorded_sizes(PARAMS, tmp_path / "dvc.lock") == {}


def test_links_count_as_what_they_lead_to(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "file").write_bytes(b"12345")
    folder = tmp_path / "raw" / "part"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "store" / "file")
    (folder / "lost").symlink_to(tmp_path / "nowhere")
    assert size_on_disk(folder) == size_on_disk(tmp_path / "raw") == 5
    assert size_on_disk(tmp_path / "store" / "file") == 5
    assert size_on_disk(tmp_path / "none") is None
