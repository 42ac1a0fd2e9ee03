"""Addresses on Hugging Face's hub: lists of files, verified bytes, downloads that are interrupted, errors."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.sources import fetch
from pipeline_src.sources.catalogue import Source, SourceFile
from tests.servers import Hub, serving_hub

REPO = "datasets/acme/pages"
SHARDS = {f"sample/{n:03d}.parquet": bytes([65 + n]) * 3_000_000 for n in range(3)}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = SHARDS | {"sample/notes.txt": b"n", "sample/deep/003.parquet": b"d", "other/004.parquet": b"o"}
    with serving_hub({(REPO, "v1"): files}) as hub:
        hub.use(monkeypatch)
        yield hub


def run(address: str, path: str = ".", **keys: str) -> None:
    entry = Source(description="d", licence="l", citation="c", files=(SourceFile(path=path, url=address, **keys),))
    obtained = fetch.obtain("entry", entry)
    with atomic_directory("out") as folder:
        fetch.fill_folder("entry", entry, obtained, folder)


def contents(folder: str = "out") -> dict[str, bytes]:
    paths = (path for path in Path(folder).rglob("*") if path.is_file() and path.name != "source.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("address", "path", "expected"),
    [
        ("sample/*.parquet", ".", {Path(path).name: data for path, data in SHARDS.items()}),
        ("*/00[1-4].parquet", "in", {"in/other/004.parquet": b"o"} | {f"in/{p}": SHARDS[p] for p in [*SHARDS][1:]}),
        ("sample/deep/003.parquet", "a/b.parquet", {"a/b.parquet": b"d"}),
        ("sample/note?.txt", ".", {"notes.txt": b"n"}),
    ],
)
def test_fetch_hub_wildcard_gives_matching_files(hub, project: Path, address: str, path: str, expected) -> None:
    run(f"hub:acme/pages@v1/{address}", path)
    assert contents() == expected
    assert json.loads(Path("sources.lock").read_text())["entry"].keys() == expected.keys()
    run(f"hub:acme/pages@v1/{address}", path)
    assert len(hub.served) == len(expected)


def test_fetch_hub_changed_shard_is_rejected_before_any_download(hub, project: Path) -> None:
    run("hub:acme/pages@v1/sample/*.parquet")
    lock = Path("sources.lock").read_text()
    hub.files[REPO, "v1"]["sample/001.parquet"] = b"changed"
    with pytest.raises(PipelineError, match=r"(?s)wrong checksum: 001\.parquet.*the publisher changed the file"):
        run("hub:acme/pages@v1/sample/*.parquet")
    assert len(hub.served) == 3 and Path("sources.lock").read_text() == lock


def test_fetch_hub_moved_branch_updates_small_file_and_keeps_large_files(hub, project: Path) -> None:
    run("hub:acme/pages@v1/sample/*")
    hub.files[REPO, "v1"]["sample/notes.txt"] = b"x"
    Path("sources.lock").unlink()
    run("hub:acme/pages@v1/sample/*")
    assert contents()["notes.txt"] == b"x"
    assert [path for path, _, _ in hub.served[4:]] == ["sample/notes.txt"]


def test_fetch_hub_small_file_is_from_listed_commit(hub, project: Path, monkeypatch) -> None:
    listed = fetch.hub.list_files(SourceFile(path="n", url="hub:acme/pages@v1/sample/notes.txt"))
    hub.files[REPO, "other"] = dict(hub.files[REPO, "v1"])
    hub.files[REPO, "v1"] = {"sample/notes.txt": b"later"}
    monkeypatch.setattr(fetch.hub, "list_files", lambda file: listed)
    run("hub:acme/pages@v1/sample/notes.txt", "n")
    assert contents() == {"n": b"n"}


def test_fetch_hub_empty_file_is_valid(hub, project: Path) -> None:
    hub.files[REPO, "v1"]["sample/none.txt"] = b""
    run("hub:acme/pages@v1/sample/none.txt", "none.txt")
    assert contents() == {"none.txt": b""}


@pytest.mark.parametrize("path", ["../003.parquet", "/tmp/003.parquet", "sample/\x1b[2J003.parquet"])
def test_fetch_hub_listed_path_outside_of_its_folder_is_rejected(hub, project: Path, path: str) -> None:
    hub.files[REPO, "v1"][path] = b"x"
    with pytest.raises(PipelineError, match="path leads outside its folder: '.*003.parquet'") as caught:
        run("hub:acme/pages@v1/*/*003.parquet")
    assert "\x1b" not in str(caught.value) and not hub.served


def test_clean_warnings_removes_control_codes(capsys) -> None:
    from huggingface_hub.utils.logging import get_logger

    fetch.hub.clean_warnings()
    (handler,) = get_logger().handlers
    text = handler.format(logging.LogRecord("a", logging.WARNING, "a", 1, "a topic \x1b]0;owned\x07", (), None))
    assert text == r"a topic \x1b]0;owned\x07"


def test_fetch_hub_other_checksum_is_checked_and_not_recorded_as_sha256(hub, project: Path) -> None:
    data = SHARDS["sample/000.parquet"]
    for algorithm, locked in (("md5", False), ("sha256", True), ("md5", True)):
        digest = hashlib.new(algorithm, data).hexdigest()
        run("hub:acme/pages@v1/sample/000.parquet", "a", checksum=f"{algorithm}:{digest}")
        assert Path("sources.lock").exists() == locked
    assert json.loads(Path("sources.lock").read_text()) == {"entry": {"a": hashlib.sha256(data).hexdigest()}}


def test_fetch_hub_file_of_two_addresses_is_rejected_before_any_download(hub, project: Path) -> None:
    files = [SourceFile(path=".", url=f"hub:acme/pages@v1/{folder}/*0?.parquet") for folder in ("sample", "other")]
    hub.files[REPO, "v1"]["other/002.parquet"] = b"o"
    with pytest.raises(PipelineError, match=r"two files of a catalogue entry have the same path: 002\.parquet"):
        fetch.obtain("entry", Source(description="d", licence="l", citation="c", files=files))
    assert not hub.served


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "hub:acme/pages@v9/sample/*.parquet",
            r"cannot list files on Hugging Face's hub: acme/pages@v9.*RevisionNotFound.*a branch, tag or commit",
        ),
        ("hub:acme/pages@refs/pr/1/*.parquet", "RevisionNotFound.*if its name has a slash, use the commit"),
        ("hub:acme/none@v1/*.parquet", r"cannot list files on Hugging Face's hub: acme/none@v1.*private or gated"),
        (
            "hub:acme/pages@v1/none/*.parquet",
            r"cannot list files on Hugging Face's hub: acme/pages@v1.*EntryNotFound.*use a path",
        ),
        ("hub:acme/pages@v1/sample/*.jsonl", r"no such file on the hub: sample/\*\.jsonl"),
    ],
)
def test_fetch_hub_missing_file_or_revision_is_rejected(hub, project: Path, address: str, message: str) -> None:
    with pytest.raises(PipelineError, match=f"(?s){message}"):
        run(address)
    assert not Path("data/downloads").exists()


def test_fetch_hub_wrong_token_is_rejected(hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret"
    for token in ("", "wrong"):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(PipelineError, match=r"(?s)GatedRepo.*hf auth login") as caught:
            run("hub:acme/pages@v1/sample/*.parquet")
        assert not token or token not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", "secret")
    Path("netrc").write_text("machine 127.0.0.1 login a password b")
    monkeypatch.setenv("NETRC", "netrc")
    run("hub:acme/pages@v1/sample/*.parquet")
    assert not any(b"secret" in path.read_bytes() for path in project.rglob("*") if path.is_file())


def test_fetch_hub_invalid_token_is_not_printed(hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_\x0bsecret")
    with pytest.raises(PipelineError, match="cannot list files.*\n.*Bearer …") as caught:
        run("hub:acme/pages@v1/sample/*.parquet")
    assert "secret" not in str(caught.value)


def test_fetch_hub_gated_file_error_names_terms_and_login(hub, project: Path, monkeypatch) -> None:
    listed = fetch.hub.list_files(SourceFile(path="n", url="hub:acme/pages@v1/sample/notes.txt"))
    hub.token = "secret"
    monkeypatch.setattr(fetch.hub, "list_files", lambda file: listed)
    with pytest.raises(PipelineError, match=r"(?s)download failed.*HTTP 401.*terms.*`hf auth login` or set HF_TOKEN"):
        run("hub:acme/pages@v1/sample/notes.txt", "n")


def test_fetch_hub_without_network_is_rejected(hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.address = "http://127.0.0.1:1"
    hub.use(monkeypatch)
    with pytest.raises(
        PipelineError,
        match=r"(?s)cannot list files on Hugging Face's hub: acme/pages@v1.*check the network, HF_ENDPOINT",
    ):
        run("hub:acme/pages@v1/sample/*.parquet")


@pytest.mark.parametrize(
    "address", ["hub:pages@v1/a", "hub:acme/pages/a", "hub:acme/pages@v1/", "hub:../pages@v1/a", "hub:acme/pages@v1/ä"]
)
def test_source_file_wrong_hub_address_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="a hub address is hub:OWNER/DATASET@REVISION"):
        SourceFile(path="a", url=address)


@pytest.mark.parametrize(
    ("address", "keys", "message"),
    [
        ("a", {"mirrors": ["https://else.where/a"]}, "takes no mirrors"),
        ("a", {"checksum_file": "https://else.where/a"}, "no checksum_file"),
        ("*.txt", {"checksum": f"md5:{'0' * 32}"}, "a checksum is for one file"),
        ("", {"checksum": f"md5:{'0' * 32}"}, "a checksum is for one file"),
        ("a/**/b", {}, r"takes no \*\*"),
        ("a/b", {"path": "."}, "path . is a folder"),
    ],
)
def test_source_file_unsupported_key_with_hub_address_is_rejected(address: str, keys, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SourceFile.model_validate({"path": "a", "url": f"hub:acme/pages@v1/{address}".rstrip("/"), **keys})


def test_fetch_hub_model_gives_config_weights_tokenizer_and_card(hub, project: Path) -> None:
    files = dict.fromkeys(["config.json", "vocab.txt", "README.md", "pytorch_model.bin", "onnx/model.onnx"], b"1")
    hub.files["acme/tiny", "main"] = files
    run("hub:acme/tiny@main")
    assert contents().keys() == {"config.json", "vocab.txt", "README.md", "pytorch_model.bin"}
    hub.files["acme/tiny", "next"] = files | {"model.safetensors": b"2"}
    Path("sources.lock").unlink()
    run("hub:acme/tiny@next")
    assert contents().keys() == {"config.json", "vocab.txt", "README.md", "model.safetensors"}
    hub.files["acme/tiny", "empty"] = {"config.json": b"1"}
    with pytest.raises(PipelineError, match=r"no such file on the hub: weights\n.*acme/tiny@empty"):
        run("hub:acme/tiny@empty")
