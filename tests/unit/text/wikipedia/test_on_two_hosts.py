"""Text stages on Dask workers of two hosts, one of which is killed: the bytes of one process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline_src.examples import tokenize_corpus
from pipeline_src.study.data import VocabularyParams
from pipeline_src.text.wikipedia import clean_wikipedia
from pipeline_src.tokenizer import train_tokenizer
from tests.made_dump import STREAMS, shards, split_streams, write_dump
from tests.studies import corpus_of
from tests.two_machines import ADDRESSES, Machines, two_machines

# Six processes import Beam.
pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 240
CORPUS = {"validation": 0.3, "near_duplicates": 0.8}
TEXT, TOKENS = Path("data/text/wikipedia/clean-text"), Path("data/tokens")
PROGRAM = """
import json, os, sys
from pipeline_src.text.wikipedia import clean_wikipedia
from pipeline_src.examples import tokenize_corpus
from tests.made_dump import split_streams
from tests.studies import corpus_of
corpus, beam_args = corpus_of("wikipedia", **json.loads(sys.argv[1])), sys.argv[2:]
split_streams()
clean_wikipedia.run("wikipedia", corpus.source("wikipedia"), beam_args)
tokenize_corpus.run(seed=1, corpus=corpus, beam_args=beam_args)
"""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with two_machines(tmp_path) as made:
        if not made.join(ADDRESSES["IPv4"]):
            pytest.skip("this host makes no network namespaces")
        yield made


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose text one process has cleaned and encoded."""
    folder = tmp_path_factory.mktemp("single") / "x [copy]"
    write_dump(folder)
    corpus = corpus_of("wikipedia", **CORPUS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIPELINE_WORKERS", "1")
        patch.chdir(folder)
        # Restored in the end.
        patch.setattr(clean_wikipedia, "split_ranges", clean_wikipedia.split_ranges)
        split_streams()
        clean_wikipedia.run("wikipedia", corpus.source("wikipedia"))
        train_tokenizer.run(seed=1, corpus=corpus, vocabulary=VocabularyParams(vocab_size=400, limit_alphabet=60))
        tokenize_corpus.run(seed=1, corpus=corpus)
    return folder


def wait_until(true: Callable[[], bool], processes: list[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < deadline
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def test_clean_wikipedia_dask_worker_killed_gives_same_bytes(
    machines: Machines, project: Path, tmp_path: Path, root: Path
) -> None:
    folder = tmp_path / "y [copy]"
    home = tmp_path / "home"
    home.mkdir()
    write_dump(folder)
    (folder / "data/vocabulary").symlink_to(project / "data/vocabulary")
    file = home / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    scheduler = ["scheduler", "--scheduler-file", str(file), "--no-dashboard", "--host", ADDRESSES["IPv4"][0]]
    processes = [machines.start(0, [*dask, *scheduler], home, root, PIPELINE_WORKERS="1")]
    try:
        wait_until(file.exists, processes)
        for number in (0, 0, 1, 1):
            options = {"host": ADDRESSES["IPv4"][number], "local-directory": home, "preload": "pipeline_src.text.beam"}
            worker = ["worker", "--scheduler-file", str(file), "--no-nanny", "--nthreads", "1", "--no-dashboard"]
            worker += [f"--{name}={value}" for name, value in options.items()]
            processes.append(machines.start(number, [*dask, *worker], home, root, PIPELINE_WORKERS="1"))
        runner = "--runner=apache_beam.runners.dask.dask_runner.DaskRunner"
        beam_args = [runner, f"--dask_scheduler_file={file}"]
        command = [sys.executable, "-c", PROGRAM, json.dumps(CORPUS), *beam_args]
        client = machines.start(0, command, folder, root, PIPELINE_WORKERS="1")
        processes.append(client)
        place = folder / TEXT.with_name(f".{TEXT.name}.partial")
        wait_until(lambda: len(list(place.rglob("*pages*.jsonl"))) >= 3, processes)
        assert len(list(place.rglob("*pages*.jsonl"))) < STREAMS and client.poll() is None
        processes[-2].send_signal(signal.SIGKILL)
        assert client.wait(PATIENCE_SECONDS) == 0, client.communicate()[0]
        assert processes[-2].wait() == -signal.SIGKILL
        assert all(process.poll() is None for process in processes[:-2])
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for made in (TEXT, TOKENS):
        assert shards(folder / made) == shards(project / made)
    assert len(shards(folder / TEXT)) > STREAMS
