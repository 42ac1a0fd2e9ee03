"""A tenth of Wikipedia through the stages on text, and the loading of examples, next to the forecast of ``plan``.

A made-up dump (``_made_wikipedia``) of some 2.5 GB of prose is fetched over HTTPS from this machine and goes through
the stages of the preset ``bert-base`` by DVC, as users start them, so that DVC's hashing counts too. Memory is that of
all processes of a stage, pages that they share once (PSS), at the largest of two looks a second; pages of mapped files,
which the system takes back when it needs them, are counted apart. It takes 30 GB of disk and, on two idle cores, an
hour. If it is stopped, the next call continues after the last stage that was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks._checkout import Checkout, check_out
from benchmarks._made_wikipedia import write_dump
from benchmarks.material import CACHE
from pipeline_src.base.files import hash_file
from pipeline_src.base.parallel import usable_cores
from pipeline_src.examples.corpus_statistics import OVERLAP_TASKS

# English Wikipedia has 7.0 million.
ARTICLES = 730_000
# train_word_vectors is left out, since it would take hours.
STAGES = (
    *("download@wikipedia", "clean@wikipedia", "download_tasks", "start_model", "train_tokenizer", "tokenize"),
    *("build_examples", "corpus_statistics"),
)
# Peak memory of a stage; time over forecast, or forecast over time.
MAX_BYTES, MAX_RATIO = 2e9, 1.5
# Seconds from which on a stage takes minutes.
MINUTES = 120
LOOK_SECONDS = 0.5
DUMP = "made-wikipedia.xml.bz2"
MB = 1_000_000
# Units of the columns that are printed.
UNITS = {
    **{"seconds": 1, "planned_seconds": 1, "cpu_s": 1},
    **{"peak": MB, "mapped": MB, "written": MB, "planned_written": MB},
}
LOADING = "from benchmarks.tenth_of_wikipedia import load; load()"
BATCHES, BATCH_SIZE = 2_000, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--articles", type=int, default=ARTICLES)
    parser.add_argument("--stages", nargs="*", default=STAGES, help="of dvc.yaml")
    arguments = parser.parse_args()
    folder = (CACHE / f"wikipedia-{arguments.articles}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / DUMP).exists():
        write_dump(folder / DUMP, arguments.articles)
    with serve_dump(folder) as (address, certificate):
        study = make_study(folder / "study", folder / DUMP, f"{address}/{DUMP}")
        environment = study.environment | {"REQUESTS_CA_BUNDLE": str(certificate)}
        cores = usable_cores()
        planned = study.run(
            "python", "-m", "pipeline_src", "plan", "--json", "--cores", str(cores), "--teraflops", "0.1"
        )
        forecast = {row["stage"]: row for row in json.loads(planned.output)["stages"]}
        results = folder / "measured.json"
        measured: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
        commands = {
            "code": ["dvc", "repro", "code"],
            **{stage: ["dvc", "repro", "--force", "--single-item", stage] for stage in arguments.stages},
            "loading": ["python", "-c", LOADING],
        }
        for stage, command in commands.items():
            if stage not in measured:
                measured[stage] = watch(command, study.path, environment)
                results.write_text(json.dumps(measured, indent=1))
    lock = yaml.safe_load((study.path / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    rows = [
        measured[stage] | row_of(forecast[stage.partition("@")[0]], lock[stage]) | {"stage": stage}
        for stage in arguments.stages
    ]
    print_rows(rows, measured["loading"], cores)


def row_of(planned: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    written = sum(out.get("size", 0) for out in recorded["outs"])
    return {"written": written, "planned_written": planned["written"], "planned_seconds": planned["seconds"]}


def print_rows(rows: list[dict[str, Any]], loading: dict[str, Any], cores: int) -> None:
    print(f"{'stage':<20}" + "".join(f"{key:>16}" for key in UNITS))
    for row in [*rows, {"stage": "loading", **loading}]:
        print(f"{row['stage']:<20}" + "".join(f"{row.get(key, 0) / unit:>16,.0f}" for key, unit in UNITS.items()))
    print(loading["output"].strip())
    timed = [row for row in rows if max(row["seconds"], row["planned_seconds"]) >= MINUTES]
    ratios = {row["stage"]: row["seconds"] / row["planned_seconds"] for row in timed}
    met = all(1 / MAX_RATIO <= ratio <= MAX_RATIO for ratio in ratios.values())
    met = met and max(row["peak"] for row in [*rows, loading]) <= MAX_BYTES
    figures = {"name": "tenth_of_wikipedia", "cores": cores, "time_over_forecast": ratios, "stages": rows}
    print(json.dumps(figures | {"loading": loading, "met": met}), flush=True)


def make_study(path: Path, dump: Path, url: str) -> Checkout:
    catalogue = path / "catalogue/sources/made-wikipedia.yaml"
    # The entry of an earlier call stays, since another address would make the download stale.
    if catalogue.exists():
        return Checkout(path)
    # A call may have been stopped here.
    shutil.rmtree(path, ignore_errors=True)
    study = check_out(path, "bert-base")
    entry = {"description": "Made up", "licence": "none", "citation": "benchmarks/tenth_of_wikipedia.py"}
    file = {"path": dump.name, "url": url, "checksum": f"sha256:{hash_file(dump)}", "bytes": dump.stat().st_size}
    params = yaml.safe_load((path / "params.yaml").read_text(encoding="utf-8"))
    wikipedia = {**params["corpus"]["sources"]["wikipedia"], "from": "made-wikipedia", "date": None, "parts": []}
    params["corpus"]["sources"] = {"wikipedia": wikipedia}
    params |= {"tasks": list(OVERLAP_TASKS), "task_source": "synthetic"}
    params["finetune"]["per_task"] = {task: {} for task in OVERLAP_TASKS}
    params["interpretation"]["minimal_pairs"] = ["templates"]
    (path / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")
    catalogue.write_text(yaml.safe_dump(entry | {"files": [file]}))
    return study


@contextlib.contextmanager
def serve_dump(folder: Path) -> Iterator[tuple[str, Path]]:
    # Over HTTPS; yields the address, and the certificate to trust.
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ThreadingHTTPServer(("localhost", 0), partial(SimpleHTTPRequestHandler, directory=str(folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://localhost:{server.server_port}", certificate
    finally:
        server.shutdown()


def watch(command: list[str], path: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Run a command; return its seconds, its processes' CPU time and peak memory in bytes, and what it printed."""
    start, peak, mapped, used = time.monotonic(), 0, 0, {}
    with tempfile.TemporaryFile("w+") as log:
        process = psutil.Popen(command, cwd=path, env=environment, stdout=log)
        while process.poll() is None:
            memory: Counter[str] = Counter()
            for one in [process, *process.children(recursive=True)]:
                with contextlib.suppress(psutil.Error, OSError):
                    times = one.cpu_times()
                    used[one.pid] = times.user + times.system
                    rollup = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
                    memory.update({name: int(size) << 10 for name, size in re.findall(r"(Pss_\w+): +(\d+)", rollup)})
            peak, mapped = max(peak, memory["Pss_Anon"] + memory["Pss_Shmem"]), max(mapped, memory["Pss_File"])
            time.sleep(LOOK_SECONDS)
        log.seek(0)
        output = log.read()
    if process.returncode:
        sys.exit(f"error: {' '.join(command)} in {path} failed:\n{output}")
    seconds = time.monotonic() - start
    print(f"  {' '.join(command)[:60]}: {seconds:.0f} s, peak {peak / 1e6:.0f} MB", flush=True)
    return {"seconds": seconds, "cpu_s": sum(used.values()), "peak": peak, "mapped": mapped, "output": output[-300:]}


def load() -> None:
    import torch

    from pipeline_src.base.paths import VOCABULARY
    from pipeline_src.pretrain.data import DataShard, TensorBatch, open_examples
    from pipeline_src.study.study import load_study
    from pipeline_src.tokenizer.load import load_tokenizer

    torch.set_num_threads(1)
    study = load_study("params.yaml")
    for phase in ("phase1", "phase2"):
        opened = time.process_time()
        member = (study.pretrain.objective, study.model.architecture)
        options = (study.mask_prob, study.pretrain.masking, study.seed, *member)
        examples = open_examples(phase, "train", load_tokenizer(VOCABULARY), *options)
        start, tokens = time.process_time(), 0
        for microbatches in examples.batches(BATCH_SIZE, study.seed, 0, BATCHES, DataShard()):
            tokens += sum(len(TensorBatch.of(batch).ids) for batch in microbatches)
        seconds = time.process_time() - start
        print(f"{phase}: {len(examples):,} examples opened in {start - opened:.1f} s; {tokens / seconds:,.0f} tokens/s")


if __name__ == "__main__":
    main()
