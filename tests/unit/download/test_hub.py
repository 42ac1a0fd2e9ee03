"""Addresses on Hugging Face's hub: lists of files, verified bytes, downloads that are interrupted, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.download import fetch, https
from pipeline_src.download.catalogue import Source, SourceFile
from tests.hub_server import Hub, serving_hub

REPO = "datasets/acme/pages"
SHARDS = {f"sample/{n:03d}.parquet": bytes([65 + n]) * 3_000_000 for n in range(3)}
FETCH = """
import os, sys
from pathlib import Path
from pipeline_src.download import fetch
from pipeline_src.download.catalogue import Source, SourceFile
files = (SourceFile(path=".", url=sys.argv[1]),)
fetch.obtain("entry", Source(description="d", licence="l", citation="c", files=files))
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = SHARDS | {"sample/notes.txt": b"n", "sample/deep/003.parquet": b"d", "other/004.parquet": b"o"}
    with serving_hub({(REPO, "v1"): files}) as hub:
        hub.use(monkeypatch)
        yield hub


def run(address: str, path: str = ".") -> None:
    entry = Source(description="d", licence="l", citation="c", files=(SourceFile(path=path, url=address),))
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


def test_fetch_hub_changed_small_file_is_rejected(hub, project: Path) -> None:
    run("hub:acme/pages@v1/sample/notes.txt", "notes.txt")
    hub.files[REPO, "v2"] = {"sample/notes.txt": b"x"}
    with pytest.raises(PipelineError, match=r"(?s)wrong checksum: notes\.txt.*sources\.lock"):
        run("hub:acme/pages@v2/sample/notes.txt", "notes.txt")


def test_fetch_hub_wrong_bytes_are_rejected_and_deleted(hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download = https.download

    def damaged(urls, target, *arguments, **options) -> None:
        download(urls, target, *arguments, **options)
        target.write_bytes(b"x" + target.read_bytes()[1:])

    monkeypatch.setattr(https, "download", damaged)
    with pytest.raises(PipelineError, match=r"wrong checksum: 000\.parquet"):
        run("hub:acme/pages@v1/sample/*.parquet")
    assert not list(Path("data/downloads").glob("*.parquet")) and not Path("sources.lock").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hub:acme/pages@v9/sample/*.parquet", r"does not list it: acme/pages@v9.*RevisionNotFound.*a branch, a tag"),
        ("hub:acme/none@v1/*.parquet", r"does not list it: acme/none@v1.*private or gated"),
        ("hub:acme/pages@v1/none/*.parquet", r"does not list it: acme/pages@v1.*EntryNotFound.*name files"),
        ("hub:acme/pages@v1/sample/*.jsonl", r"no such file on the hub: sample/\*\.jsonl"),
    ],
)
def test_fetch_hub_missing_is_one_error(hub, project: Path, address: str, message: str) -> None:
    with pytest.raises(PipelineError, match=f"(?s){message}"):
        run(address)
    assert not Path("data/downloads").exists()


def test_fetch_hub_token_is_sent_and_a_wrong_one_refused(hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "secret"
    for token in ("", "wrong"):
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(PipelineError, match=r"(?s)GatedRepo.*hf auth login") as caught:
            run("hub:acme/pages@v1/sample/*.parquet")
        assert not token or token not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", "secret")
    run("hub:acme/pages@v1/sample/*.parquet")
    assert not any(b"secret" in path.read_bytes() for path in project.rglob("*") if path.is_file())


def test_fetch_hub_without_network_is_one_error(hub, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.address = "http://127.0.0.1:1"
    hub.use(monkeypatch)
    with pytest.raises(PipelineError, match=r"(?s)does not list it: acme/pages@v1.*check the network, HF_ENDPOINT"):
        run("hub:acme/pages@v1/sample/*.parquet")


def test_fetch_hub_killed_download_continues_within_its_file(hub, project: Path, root: Path) -> None:
    hub.ends_after["sample/001.parquet"] = [1_000_000]
    command = [sys.executable, "-c", FETCH, "hub:acme/pages@v1/sample/*.parquet"]
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(root)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while len(hub.served) < 2 and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()  # while it waits to try the second file again
    process.wait()
    assert [path for path, _, _ in hub.served] == ["sample/000.parquet", "sample/001.parquet"]
    run("hub:acme/pages@v1/sample/*.parquet")
    assert contents() == {Path(path).name: data for path, data in SHARDS.items()}
    (second, start, size), (third, _, _) = hub.served[2:]
    assert (second, third) == ("sample/001.parquet", "sample/002.parquet")
    assert 0 < start <= 1_000_000 and start + size == 3_000_000


@pytest.mark.parametrize(
    "address", ["hub:pages@v1/a", "hub:acme/pages/a", "hub:acme/pages@v1/", "hub:../pages@v1/a", "hub:acme/pages@v1/ä"]
)
def test_source_file_wrong_hub_address_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="a hub address is hub:OWNER/DATASET@REVISION"):
        SourceFile(path="a", url=address)


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
