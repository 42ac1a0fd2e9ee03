"""A toy study with every construction of dvc.yaml that the bridge must read, run by the two real engines.

Its stages take no time and note each of their runs in ``runs.txt``, so that a test can say what ran, whichever
engine ran it.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from benchmarks._checkout import snakefile
from tests.children import MAINS, Child
from tests.workflow.cluster import Cluster, Unavailable, unpack

DVC_YAML = """
vars: [{folder: shards}]
stages:
  code:
    cmd: python -m toy.code
    deps: [toy]
    outs: [code]
  shard:
    foreach: ${shards}
    do:
      cmd: python -m toy.shard ${item}
      deps: [raw/text.txt, code/shard]
      params: [date]
      outs: ["data/${folder}/${item}"]
  count:
    cmd: python -m toy.count
    deps: [data/shards, code/count]
    params: [count.size, arguments]
    outs: [data/count.txt]
  pretrain:
    cmd: $LAUNCH python -m toy.pretrain
    deps: [data/count.txt, code/pretrain]
    params: [mask_prob]
    outs: [models/pretrained]
  finetune:
    matrix: {task: "${tasks}", seed: "${finetune.seeds}"}
    cmd: python -m toy.finetune ${item.task} ${item.seed}
    deps: [models/pretrained, "data/shards/a/${item.task}.txt", code/finetune]
    params: [{tasks.yaml: ["${item.task}"]}]
    outs: ["results/predictions/${item.task}/${item.seed}"]
  report:
    cmd: python -m toy.report
    deps: [results/predictions, code/report]
    outs: [results/report.md]
    metrics: [{results/summary.json: {cache: false}}]
    plots: [{results/curve.tsv: {x: step, y: loss}}]
metrics: [results/summary.json]
"""
PARAMS = """
mask_prob: 0.15
date: null
shards: [a, b]
count: {size: 3}
arguments: []
tasks: [cola, squad2]
finetune: {seeds: [1]}
"""
COMMON = '''
import os, pathlib, sys, time
def begin(*item):
    """Note the run, then wait or fail where the test says so."""
    name = "@".join([pathlib.Path(sys.argv[0]).stem, *(["-".join(item)] if item else [])])
    with open("runs.txt", "a") as file:
        file.write(name + "\\n")
    if name in os.environ.get("TOY_SLOW", "").split():
        for _ in range(6000):
            if pathlib.Path("go").exists(): break
            time.sleep(0.05)
    if name in os.environ.get("TOY_FAIL", "").split():
        sys.exit("told to fail")
def param(name):
    import yaml
    return yaml.safe_load(open("params.yaml"))[name]
def write(path, text):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\\n")
def read(path):
    return " ".join(p.read_text().strip() for p in sorted(pathlib.Path(path).rglob("*.txt")))
'''
CODE = {
    "code": """
import ast, hashlib
common = pathlib.Path("toy/common.py").read_text()
for path in pathlib.Path("toy").glob("*.py"):  # comments do not count
    tree = ast.dump(ast.parse(common + path.read_text()))
    write(f"code/{path.stem}", hashlib.sha256(tree.encode()).hexdigest())
""",
    "shard": """
item = sys.argv[1]
begin(item)
for task in ("cola", "squad2"):
    write(f"data/shards/{item}/{task}.txt", f"{item} {task}")
""",
    "count": "begin()\nwrite(\"data/count.txt\", f\"{param('count')} {read('data/shards')}\")",
    "pretrain": """
begin()
write("models/pretrained/model.txt", f"{param('mask_prob')} {open('data/count.txt').read()}")
""",
    "finetune": """
begin(*sys.argv[1:])
write(f"results/predictions/{sys.argv[1]}/{sys.argv[2]}/out.txt", read("models/pretrained"))
""",
    "report": """
begin()
write("results/report.md", read("results/predictions"))
write("results/summary.json", '{"score": %d}' % len(read("results/predictions")))
write("results/curve.tsv", "step\\tloss\\n1\\t2")
""",
}
MADE = shutil.ignore_patterns(
    *".git .venv .snakemake .*cache code data models results logs checkpoints tmp cache config.local".split()
)
NOTES = (
    ".git/",
    ".snakemake/dvc/",
    "code/",
    "__pycache__",
    ".snakemake/iocache",
    ".snakemake/log",
    ".dvc/tmp/",
    "runs.txt",
    "report.html",
)
MEMBERS = {
    "shard": {"shard@a", "shard@b"},
    "finetune": {f"finetune@{task}-{seed}" for task in ("cola", "squad2") for seed in (1,)},
}
FROM_PRETRAIN = {"pretrain", *MEMBERS["finetune"], "report"}
EVERYTHING = {*MEMBERS["shard"], "count", *FROM_PRETRAIN}


@dataclass
class Project:
    """A study in a folder, and the two engines on it. No git identity and no home folder are at hand.

    The engines are called in child processes (``tests/children.py``), and with ``programs`` started as programs.
    """

    path: Path
    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    programs: bool = False

    def run(self, *command: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; its messages are in ``stdout``."""
        process = self._started(command, more, session=False)
        output, _ = process.communicate()
        if check and process.returncode:
            raise AssertionError(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
        return subprocess.CompletedProcess(command, process.returncode, output)

    def start(self, *command: str, **more: str) -> subprocess.Popen[str]:
        """Start a command and leave it running, in a process group of its own."""
        return self._started(command, more, session=True)

    def _started(self, command: Sequence[str], more: dict[str, str], session: bool) -> subprocess.Popen[str] | Child:
        if command[0] in MAINS and not self.programs:
            return Child(command[0], command[1:], self.path, self.variables(more), session)
        return subprocess.Popen(
            command,
            cwd=self.path,
            env=self.variables(more),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=session,
        )

    def snakemake(self, *arguments: str, check: bool = True, **more: str) -> str:
        """Return the output of ``snakemake --cores 2 ... all``."""
        return self.run("snakemake", "--cores", "2", *arguments, "all", check=check, **more).stdout

    def dvc(self, *arguments: str, check: bool = True, **more: str) -> str:
        """Return the output of a DVC command."""
        return self.run("dvc", *arguments, check=check, **more).stdout

    def commit(self) -> None:
        """Commit everything to git."""
        self.run("git", "add", "-A")
        self.run("git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "state")

    def ran(self) -> list[str]:
        """Stages that ran since the last question, in order."""
        notes = self.path / "runs.txt"
        lines = notes.read_text().split() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return lines

    def wait_for(self, stage: str, patience: float = 240) -> None:
        """Return when ``stage`` has begun."""
        deadline = time.monotonic() + patience
        while stage not in ((self.path / "runs.txt").read_text() if (self.path / "runs.txt").exists() else ""):
            assert time.monotonic() < deadline, f"{stage} never began"
            time.sleep(0.05)

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text in a file."""
        path = self.path / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def append(self, file: str, text: str) -> None:
        """Add text to a file, replacing DVC's link to its cache by a file."""
        path = self.path / file
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content + text.encode())

    def clone(self, to: Path, *options: str) -> Project:
        """A clone by git, with neither outputs nor DVC's cache."""
        self.run("git", "clone", "-q", *options, f"file://{self.path}", str(to))
        return Project(to, self.home, self.environment)

    def copy(self, to: Path) -> Project:
        """The same project elsewhere."""
        shutil.copytree(self.path, to, symlinks=True)
        (to / ".dvc/tmp/rwlock").unlink(missing_ok=True)  # on a cluster a link to the original's
        return Project(to, self.home, self.environment)

    def files(self) -> dict[str, tuple[int, str]]:
        """When every file was written and what it holds, but for git's and the engines' own notes and the toy's."""
        contents = {}
        for path in sorted(self.path.rglob("*")):
            name = str(path.relative_to(self.path))
            if path.is_file() and not name.startswith(NOTES):
                contents[name] = (path.stat().st_mtime_ns, path.read_bytes().hex())
        return contents

    def nothing_to_do(self) -> bool:
        """Whether both engines agree that everything is fresh."""
        assert "up to date" in self.dvc("status"), self.dvc("status")
        output = self.snakemake("-n")
        assert "Nothing to be done" in output, output
        return True

    def variables(self, more: dict[str, str]) -> dict[str, str]:
        """The environment of every command, with ``more``."""
        inherited = {key: os.environ[key] for key in ("PATH", "LANG", "LD_LIBRARY_PATH") if key in os.environ}
        inherited["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', '')}"
        engines = {"HOME": str(self.home), "DVC_SITE_CACHE_DIR": str(self.home / "dvc"), "DVC_NO_ANALYTICS": "1"}
        return inherited | engines | {"PYTHONDONTWRITEBYTECODE": "1"} | self.environment | more


def write_study(path: Path, bridge: Path, declared: str, params: str) -> None:
    """Write a study with the project's bridge, whose rules all run their stage's command, into an empty folder."""
    for folder in ("workflow/profiles/default", ".dvc"):
        (path / folder).mkdir(parents=True)
    (path / "dvc.yaml").write_text(declared)
    (path / "params.yaml").write_text(params)
    (path / "workflow/Snakefile").write_text(snakefile(yaml.safe_load(declared)["stages"], bridge))
    shutil.copy(bridge / "profiles/default/config.yaml", path / "workflow/profiles/default/config.yaml")
    _, _, of_any_study = (bridge.parent / ".dvcignore").read_text().partition("\n\n")  # the rest names our folders
    (path / ".dvcignore").write_text(of_any_study)
    (path / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (path / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")


def write_toy(path: Path, bridge: Path) -> None:
    """Write the toy study into an empty folder."""
    write_study(path, bridge, DVC_YAML, PARAMS)
    for folder in ("toy", "raw"):
        (path / folder).mkdir()
    (path / "raw/text.txt").write_text("words\n")
    (path / "toy/common.py").write_text(COMMON)
    (path / "tasks.yaml").write_text("cola: {labels: 2}\nsquad2: {labels: null}\n")
    for name, code in CODE.items():
        imports = "import pathlib, sys\nfrom toy.common import begin, param, read, write\n"
        (path / f"toy/{name}.py").write_text(f"{imports}{code}\n")
    (path / ".gitignore").write_text(
        "__pycache__/\n/code/\n/data/\n/models/\n/results/*\n!/results/summary.json\n/.snakemake/\nruns.txt\ngo\n"
    )


@pytest.fixture(scope="session")
def workflow_module(root: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of workflow/, as the Snakefile does."""
    sys.path.insert(0, str(root / "workflow"))
    yield importlib.import_module
    sys.path.remove(str(root / "workflow"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Project:
    """The toy study, run once by Snakemake and committed; tests work on copies."""
    project = Project(tmp_path_factory.mktemp("toy") / "study", tmp_path_factory.mktemp("home"))
    write_toy(project.path, root / "workflow")
    project.run("git", "init", "-q", "-b", "main")
    project.commit()
    output = replace(project, programs=True).snakemake()
    assert sorted(project.ran()) == sorted(EVERYTHING), output
    project.commit()
    return project


@pytest.fixture
def study(finished: Project, tmp_path: Path) -> Project:
    """A copy of the finished toy study."""
    project = finished.copy(tmp_path / "study")
    (project.path / ".git/config").open("a").write("[user]\n    name = a\n    email = a@example.org\n")
    return project


@pytest.fixture(scope="session")
def fresh_clone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Makes a clone of the working tree's own files under a preset, committed, before anything was run."""

    def make(preset: str) -> Project:
        path = tmp_path_factory.mktemp("clone") / "study"
        shutil.copytree(root, path, symlinks=True, ignore=lambda folder, names: _left_out(root, folder, names))
        project = Project(path, tmp_path_factory.mktemp("home"))
        project.run("python", "-m", "pipeline_src", "preset", preset)
        project.run("git", "init", "-q", "-b", "main")
        project.commit()
        return project

    return make


@pytest.fixture(scope="session")
def finished_study(fresh_clone: Callable[[str], Project], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project's own study under the `test` preset, run by Snakemake and committed to git. Work on a copy of it.

    One worker runs it, the others wait and take a copy: it costs the better part of a minute.
    """
    workers = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        workers = workers.parent  # where each has its folder
    made = workers / "finished-study"
    with open(workers / "finished-study.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            project = replace(fresh_clone("test"), programs=True)
            project.snakemake()
            project.commit()
            project.path.rename(made)
    return Project(made, tmp_path_factory.mktemp("home")).copy(tmp_path_factory.mktemp("finished") / "study")


def _left_out(root: Path, folder: str, names: list[str]) -> set[str]:
    """What the stages made, at the root alone: packages of the code may bear the same names."""
    if Path(folder) in (root, root / ".dvc"):
        return set(MADE(folder, names))
    return {name for name in names if name == "__pycache__"}


@pytest.fixture
def background() -> Iterator[Callable[[subprocess.Popen[str]], subprocess.Popen[str]]]:
    """Registers processes that are ended, with all they started, when the test ends."""
    started: list[subprocess.Popen[str]] = []

    def register(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
        started.append(process)
        return process

    yield register
    for process in started:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it ended by itself
        process.communicate()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running Slurm."""
    folder = tmp_path_factory.mktemp("slurm")
    running = None
    try:
        unpack(folder)
        running = Cluster(folder)
        running.up()
    except Unavailable as error:
        pytest.skip(f"no Slurm: {error}")
    else:
        yield running
    finally:
        if running:
            running.down()
