"""Sizes out of dvc.lock: believed while the parameters above them are those in force."""

import yaml

from pipeline_src.tools.planning.output_sizes import recorded_sizes, size_on_disk

LOCK = {
    "stages": {
        "books": {
            "params": {"params.yaml": {"books": {"source": "plays"}}},
            "outs": [{"path": "data/text/books", "size": 10}],
        },
        "vocabulary": {
            "deps": [{"path": "data/text/books"}, {"path": "pipeline_src/common/files.py"}],
            "params": {"params.yaml": {"seed": 1, "vocabulary.entries": 100}},
            "outs": [{"path": "data/vocabulary", "size": 20}],
        },
        "pretrain": {
            "deps": [{"path": "data/vocabulary/vocab.txt"}],
            "outs": [{"path": "models/short", "size": 30}, {"path": "results/short.tsv"}],
        },
    }
}
PARAMS = {"seed": 1, "books": {"source": "plays"}, "vocabulary": {"entries": 100, "other": 5}}


def sizes(tmp_path, **changes):
    lock = tmp_path / "dvc.lock"
    lock.write_text(yaml.safe_dump(LOCK))
    return recorded_sizes(PARAMS | changes, lock)


def test_the_same_parameters_give_the_recorded_sizes(tmp_path):
    assert sizes(tmp_path) == {"data/text/books": 10, "data/vocabulary": 20, "models/short": 30}


def test_another_parameter_leaves_only_what_lies_above_it(tmp_path):
    assert sizes(tmp_path, vocabulary={"entries": 200}) == {"data/text/books": 10}
    assert sizes(tmp_path, books={"source": "novels"}) == {}


def test_without_a_lock_nothing_is_known(tmp_path):
    assert recorded_sizes(PARAMS, tmp_path / "dvc.lock") == {}


def test_links_count_as_what_they_lead_to(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "file").write_bytes(b"12345")
    folder = tmp_path / "raw" / "part"
    folder.mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "store" / "file")
    (folder / "lost").symlink_to(tmp_path / "nowhere")
    assert size_on_disk(folder) == size_on_disk(tmp_path / "raw") == 5
    assert size_on_disk(tmp_path / "store" / "file") == 5
    assert size_on_disk(tmp_path / "none") is None
