"""Pieces of benchmark ``gpu`` that run the project's own stages: pretraining, fine-tuning, BLiMP; and what travels.

The study's two phases must have examples of one length. Its first phase takes ``PROBE`` steps and so tells the
rate, from which follows how many steps the second one can take; the study's parameters decide everything else.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.torch import load_file, save_file

from benchmarks._gpu_session import COMMIT, ROOT, STOPPED, Session, commit
from benchmarks._gpu_steps import VARIANTS, fastest
from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import read_json
from pipeline_src.base.paths import EXAMPLES, START_MODEL, TASKS, TOKENS, VOCABULARY, clean_text
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import load_study

PROBE, REHEARSED_PROBE = 200, 4  # steps of the first phase
SAFETY = 0.93  # share of the time left that is planned for
MOST_STEPS = 20  # of a rehearsal
MICROBATCH = 65_536  # tokens
SYNTHETIC = ("cola", "sst2", "rte")  # tasks of a study that travels without any
SEEDS = (1, 2, 3)
TRAINED = Path("models/pretrained/phase2")
HALFWAY = Path("models/halfway")  # the model kept halfway, where pretraining did not end
SHAPE = "8x512"  # whose fastest variant trains
BLIMP = "blimp"
PIECE_BYTES = 15 << 20
TRAVELLING = ("params.yaml", *map(str, (VOCABULARY, TOKENS, EXAMPLES, START_MODEL, TASKS)))
LIMIT = 64 << 20  # bytes of all that travels, the project's own files too
# what the stages and benchmarks import and an image with torch, transformers and scikit-learn may lack
WHEELS = (
    *("annotated-types", "chardet", "google-crc32c", "lxml", "pydantic", "pydantic-core", "ruamel-yaml"),
    *("ruamel-yaml-clib", "sentencex", "typing-extensions", "typing-inspection"),
)
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17, 5)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]


def pretraining(session: Session) -> None:
    """Both phases in the time there is, with a checkpoint and a model halfway."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # the stage saves a checkpoint; what follows sees its exit status
    study = study_folder(session)
    variant = fastest(session.cells_of("rates"), SHAPE)
    if "phase1" not in session.cells:
        probe = REHEARSED_PROBE if session.rehearsal else PROBE
        set_params(study, {"steps": {"phase1": probe, "phase2": 100 * probe}, "keep_checkpoint_steps": []})
        set_machine(study, variant, session.rehearsal)
        session.put("phase1", _run_phase(study, "phase1", variant))
    if "plan" not in session.cells:
        plan = planned_steps(session.cells["phase1"], session.seconds_left())
        first, steps = session.cells["phase1"]["steps"], min(plan, MOST_STEPS) if session.rehearsal else plan
        half = first + steps // 2
        values = {"steps": {"phase1": first, "phase2": steps}, "keep_checkpoint_steps": [half]}
        set_params(study, values | {"eval_steps": max(1, steps // 4)})
        session.put("plan", {"variant": variant, "steps": steps, "halfway": half})
    if "phase2" not in session.cells:
        session.put("phase2", _run_phase(study, "phase2", session.cells["plan"]["variant"]))
    session.cell("model", partial(pack_model, study / TRAINED, session.back))


def finetuning(session: Session) -> None:
    """BLiMP, and every task of the study with three seeds, several at once."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    study = study_folder(session)
    model = trained_model(study)
    values = set_tasks(study, model)
    jobs = {BLIMP: _run_blimp} if (study / TASKS / BLIMP).is_dir() else {}
    runs = {f"{task}, seed {seed}": (task, seed) for seed in values["finetune"]["seeds"] for task in values["tasks"]}
    workers = max(1, (os.cpu_count() or 1) - 2)  # each is bound by its host thread
    with ThreadPoolExecutor(workers) as pool:
        waiting = {
            pool.submit(job, study, model, session.rehearsal): name
            for name, job in jobs.items() if name not in session.cells
        } | {
            pool.submit(_run_task, study, task, seed): name
            for name, (task, seed) in runs.items() if name not in session.cells
        }  # fmt: skip
        try:
            for done in as_completed(waiting):
                error = done.exception()
                if isinstance(error, SystemExit):
                    raise error
                session.put(waiting[done], {"error": str(error)} if error else done.result() | {"model": str(model)})
        except SystemExit:
            pool.shutdown(cancel_futures=True)
            raise
    if model == HALFWAY:
        session.cell("model kept halfway", partial(pack_model, study / model, session.back))
    if not any("error" in cell for cell in session.cells.values()):
        session.cell("scores", partial(_run_evaluate, study))


def planned_steps(phase1: Mapping[str, Any], seconds: float) -> int:
    """Return the steps that fit into ``seconds``, by a first phase's rate and what it took besides training.

    Starting, validating and saving take the second phase half as long again, since it does the latter two more often.
    """
    besides = 1.5 * (phase1["wall_seconds"] - phase1["training_seconds"])
    rate = phase1["steady_steps"] / phase1["training_seconds"]
    return max(2, round(SAFETY * (seconds - besides) * rate))


def study_folder(session: Session) -> Path:
    """Return the folder in which the stages run: the study that travelled, or in a rehearsal a tiny one."""
    folder = session.out / "study"
    if folder.exists():
        return folder
    unfinished = session.out / "study.partial"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    if session.rehearsal:
        make_tiny_study(unfinished)
    elif session.study is None:
        raise SystemExit("error: no study to pretrain: --study names its folder, or the archive that --pack made")
    elif session.study.is_dir():
        for name in TRAVELLING:
            if (session.study / name).is_dir():
                shutil.copytree(session.study / name, unfinished / name)
            elif (session.study / name).exists():
                shutil.copy(session.study / name, unfinished / name)
    else:
        with tarfile.open(session.study) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 or newer
            archive.extractall(unfinished)
    unfinished.rename(folder)
    return folder


def set_params(study: Path, pretrain: Mapping[str, Any]) -> None:
    """Change keys of ``pretrain`` in a study's params.yaml."""
    values = _params(study)
    values["pretrain"].update(pretrain)
    _write_yaml(study / "params.yaml", values)


def set_machine(study: Path, variant: str, rehearsal: bool) -> None:
    """Write the machine.yaml of a variant."""
    threads, settings = {"threads": 1 if rehearsal else 4}, dict(VARIANTS[variant].machine)
    of_a_gpu = {} if rehearsal else settings.get("pretrain", {})  # which a CPU refuses
    settings["pretrain"] = threads | {"microbatch_tokens": MICROBATCH} | of_a_gpu
    _write_yaml(study / "machine.yaml", {**settings, "finetune": threads})


def set_tasks(study: Path, model: Path) -> dict[str, Any]:
    """Have the study fine-tune ``model`` with three seeds, on its tasks or on synthetic ones; return its params."""
    values = _params(study)
    there = [task for task in values["tasks"] if (study / TASKS / task).is_dir()]
    values["tasks"] = there or [*SYNTHETIC]
    values["finetune"] |= {"seeds": [*SEEDS], "model": str(model)}
    if not there:
        values["task_source"] = "synthetic"
        values["interpretation"]["minimal_pairs"] = []
        values["finetune"]["per_task"] |= {task: {} for task in SYNTHETIC if task not in values["finetune"]["per_task"]}
    _write_yaml(study / "params.yaml", values)
    if not there:
        _run_stage(study, "download_tasks")
    return values


def trained_model(study: Path) -> Path:
    """Return the model that pretraining ended with, else the one that it kept halfway.

    Raises:
        SystemExit: there is neither.
    """
    if (study / TRAINED).is_dir():
        return TRAINED
    models = sorted(study.glob("checkpoints/*/*/kept/*"), key=lambda path: int(path.name))
    if not models:
        raise SystemExit("error: no model was pretrained, not even halfway")
    shutil.copytree(models[-1], study / HALFWAY, dirs_exist_ok=True)
    return HALFWAY


def pack_model(model: Path, back: Path) -> dict[str, Any]:
    """Put a model's folder in Hugging Face's layout, in bfloat16, into pieces: ``cat model.tar.* | tar x``."""
    folder, archive = back / "model", back / "model.tar"
    folder.mkdir(parents=True, exist_ok=True)
    for path in model.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, folder / path.name)
    weights = load_file(model / "model.safetensors")
    narrow = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    save_file(narrow, folder / "model.safetensors", metadata={"format": "pt"})
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, "model")
    data = archive.read_bytes()
    pieces = [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)]
    for number, piece in enumerate(pieces):
        (back / f"model.tar.{number:02}").write_bytes(piece)
    archive.unlink()
    shutil.rmtree(folder)
    return {"bytes": len(data), "files": len(pieces), "parameters": sum(tensor.numel() for tensor in weights.values())}


def pack(folder: Path, study: Path) -> None:
    """Fill ``folder`` with what has to travel besides the checkout: the study's inputs, wheels, the commit.

    Raises:
        SystemExit: git would see the folder, the study is not ready, or it is too large.
    """
    if subprocess.run(["git", "check-ignore", "-q", str(folder.absolute() / COMMIT)], cwd=ROOT).returncode == 1:
        raise SystemExit(f"error: git does not ignore {folder}: choose a folder below data/")
    missing = [name for name in TRAVELLING[:4] if not (study / name).exists()]
    if missing:
        raise SystemExit(f"error: {study} has no {', '.join(missing)}: run its stages up to build_examples first")
    try:
        load_study(study / "params.yaml")  # with this project's catalogue, which is what travels
    except PipelineError as error:
        raise SystemExit(f"error: the study does not load here: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    pack_study(study, folder / "study.tar.xz")
    (folder / COMMIT).write_text(f"{commit(None)}\n")
    command = wheels_command(folder / "wheels")
    print(" ".join(command), flush=True)
    if subprocess.run(command).returncode:
        print("error: not all wheels were fetched; run this command where there is a network", file=sys.stderr)
    ours = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    project = sum((ROOT / name).stat().st_size for name in listed if (ROOT / name).is_file())
    print(f"{folder}: {ours / 2**20:.1f} MiB, and the project's own files {project / 2**20:.1f} MiB")
    if ours + project > LIMIT:
        raise SystemExit(f"error: more than {LIMIT >> 20} MiB travel together: take less text, or fewer tasks")


def pack_study(study: Path, archive: Path) -> None:
    """Write the inputs of a study's training into a .tar.xz."""
    with tarfile.open(archive, "w:xz") as tar:
        for name in TRAVELLING:
            if (study / name).exists():
                tar.add(study / name, name)


def wheels_command(folder: Path) -> list[str]:
    """Return the command that fetches the wheels for Python 3.12 on Linux, in the versions of the lock."""
    lock = (ROOT / "locks/study.lock").read_text()
    versions = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock, re.MULTILINE))
    requirements = [f"{name}=={versions[name]}" for name in WHEELS]
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else [shutil.which("pip3") or "pip3"]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    of_python = ["--only-binary=:all:", "--python-version", "3.12", "--implementation", "cp", *platforms]
    return [*pip, "download", "-q", "--no-deps", *of_python, "-d", str(folder), *requirements]


def make_tiny_study(folder: Path) -> None:
    """Text of a few hundred made-up words, and all that the stages make of it, in a few seconds."""
    from pipeline_src.examples import build_examples, tokenize_corpus
    from pipeline_src.tasks import download_tasks
    from pipeline_src.text.documents import Document, write_manifest, write_shard
    from pipeline_src.tokenizer import train_tokenizer

    values = yaml.safe_load(preset_text("test", ROOT / "workflow/presets"))
    values["model"] |= {"architecture": "modernbert"}
    values["examples"] |= {"pair_objective": "none", "max_seq_length": {"phase1": 32, "phase2": 32}}
    values["vocabulary"] |= {"vocab_size": 500}
    values["tasks"] = ["rte", "sst2"]
    values["finetune"]["per_task"]["sst2"] = {}
    values["finetune"]["defaults"] |= {"max_length": 32}
    _write_yaml(folder / "params.yaml", values)
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice([*"abdeiklmnorstu"], 5)) for _ in range(300)]

    def sentence() -> str:
        return " ".join(rng.choice(words, 9)).capitalize() + "."

    for source in values["corpus"]["sources"]:
        texts = ["\n".join(" ".join(sentence() for _ in range(6)) for _ in range(8)) for _ in range(40)]
        text = folder / clean_text(source)
        text.mkdir(parents=True)
        documents = (Document(f"{source}:{number}", str(number), text) for number, text in enumerate(texts))
        write_manifest(text, [write_shard(text / "all.jsonl", documents)], {})
    with chdir(folder):
        study = load_study()
        train_tokenizer.run(seed=study.seed, corpus=study.corpus, vocabulary=study.vocabulary)
        tokenize_corpus.run(seed=study.seed, corpus=study.corpus)
        build_examples.run(seed=study.seed, examples=study.examples)
        download_tasks.run(
            seed=study.seed, task_source=study.task_source, tasks=study.tasks, corpus=study.corpus,
            interpretation=study.interpretation,
        )  # fmt: skip


def _run_phase(study: Path, phase: str, variant: str) -> dict[str, Any]:
    """Run a phase; return its cost and figures, and its rate without the steps that compiled."""
    _run_stage(study, "pretrain", "--phase", phase)
    cost, run = (read_json(study / f"logs/pretrain/{phase}.{kind}.json", dict) for kind in ("cost", "run"))
    results = read_json(study / f"results/pretrain/{phase}.json", dict)
    return {
        "variant": variant,
        "steps": results["steps"],
        "steady_steps": results["steps"] - cost["compile_steps"],
        "steps_per_s": round((results["steps"] - cost["compile_steps"]) / cost["training_seconds"], 3),
        "wall_seconds": run["seconds"],
        **{
            key: cost[key] for key in ("tokens_per_second", "mfu", "training_seconds", "compile_seconds", "peak_memory")
        },
        "parameters": results["parameters"],
        "tokens": results["cost"]["tokens"],
        "train": results["train"],
        "validation": results["validation"],
        "curve": (study / f"results/pretrain/{phase}.tsv").read_text(),
    }


def _run_task(study: Path, task: str, seed: int) -> dict[str, Any]:
    _run_stage(study, "finetune", "--task", task, "--seed", str(seed))
    run = read_json(study / f"results/predictions/{task}/{seed}/predicted/run.json", dict)
    return {"task": task, "seed": seed, "recipe": run["recipe"], "runs": run["runs"]}


def _run_blimp(study: Path, model: Path, rehearsal: bool) -> dict[str, Any]:
    output = study / "blimp.json"
    few = ["--pairs", "2"] if rehearsal else []
    _run_stage(study, "blimp", "--model", str(model), "--precision", "bfloat16", "--output", output.name, *few)
    return {"accuracy": read_json(output, dict)["BLiMP all"]["accuracy"], "sets": read_json(output, dict)}


def _run_evaluate(study: Path) -> dict[str, Any]:
    _run_stage(study, "evaluate")
    return {"scores": read_json(study / "results/scores.json")}


def _run_stage(study: Path, *words: str) -> None:
    """Run a stage or tool in the study's folder.

    Raises:
        SystemExit: it was stopped, and would go on.
        RuntimeError: it failed; with the end of what it said.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environment |= {"PIPELINE_PLAIN_PROGRESS": "1", "PIPELINE_CHECKPOINT_MINUTES": "3"}
    program = [sys.executable, "-m", "pipeline_src", *words]
    done = subprocess.run(
        program, cwd=study, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode in (STOPPED, -signal.SIGTERM):
        raise SystemExit(STOPPED)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with status {done.returncode}: {done.stdout[-1500:]}")


def _params(study: Path) -> dict[str, Any]:
    return yaml.safe_load((study / "params.yaml").read_text(encoding="utf-8"))


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(values), sort_keys=False), encoding="utf-8")
