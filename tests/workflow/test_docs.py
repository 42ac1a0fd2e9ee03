"""The documentation against the code: commands, options, links, messages."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import networkx
import pytest
import yaml

from benchmarks.__main__ import names as benchmark_names
from catalogue.page import page as data_page
from pipeline_src import __main__ as command_line
from pipeline_src.sources.catalogue import Source
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import check_study
from pipeline_src.study.task_spec import TaskSpec
from tests.studies import versions
from tests.workflow.documented import AFTER_A_STUDY, ASSIGNMENT, AT_ONCE, ELSEWHERE, Command, commands, pages

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = commands(ROOT)
PAGES = pages(ROOT)
OF_THE_ENVIRONMENT = {"source .venv/bin/activate"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.file}: {command.text}")
def test_documented_command_is_run_by_test_or_marked(command: Command) -> None:
    known = {*AT_ONCE, *AFTER_A_STUDY, *ELSEWHERE, *OF_THE_ENVIRONMENT}
    assert command.needs or command.text in known, "name it in tests/workflow/documented.py, or mark what it needs"


def test_documented_command_lists_contain_only_commands_in_docs() -> None:
    assert {*AT_ONCE, *AFTER_A_STUDY, *ELSEWHERE} <= {command.text for command in COMMANDS}


def test_documented_command_tests_exist() -> None:
    for test_id in ELSEWHERE.values():
        file, _, name = test_id.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), test_id


@pytest.mark.parametrize("text", dict.fromkeys(command.text for command in COMMANDS))
def test_documented_command_is_parsed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(text)
    while words and ASSIGNMENT.match(words[0]):
        words.pop(0)
    if words[:3] == ["python", "-m", "pipeline_src"]:
        monkeypatch.chdir(ROOT)
        if words[3:] != ["--help"]:
            command_line._parse(words[3:])
    elif words[:2] == ["python", "-m"]:
        assert importlib.util.find_spec(words[2])
    elif words[0] == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets)
    elif words[0] == "dvc" and words[1] == "repro":
        stages = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
        named = [word.partition("@")[0] for word in words[2:] if not word.startswith("-")]
        assert all(f"\n  {name}:\n" in stages for name in named)
    else:
        known = "dvc hf snakemake sbatch source python python3 git cd cp mkdir rm".split()
        assert words[0] in known or words[0].startswith(".onnx/bin/")


@pytest.mark.parametrize("text", AT_ONCE)
def test_documented_command_of_seconds_succeeds(text: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".snakemake", "tests", "data", "models", "logs", "checkpoints", "tmp"
    )
    for name in ("workflow", "catalogue", "pipeline_src", "locks", ".dvc"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=lambda folder, names: ignored(folder, names) - {"models"})
    for name in ("dvc.yaml", "pyproject.toml", "torch.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "workflow/presets/sample.yaml", tmp_path / "params.yaml")
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": ""}
    done = subprocess.run(
        text, shell=True, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_links_have_targets(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"https?:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target
        if "#" in target and not target.startswith("http"):
            file, _, section = target.partition("#")
            titles = re.findall(r"^#+ (.*)", (page.parent / file if file else page).read_text(), re.MULTILINE)
            assert section in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_files_and_parameters_exist(page: Path) -> None:
    """Paths of the project in code spans, and keys such as ``pretrain.train_batch_size``."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", text)
    for span in spans:
        if re.fullmatch(r"(?:pipeline_src|catalogue|workflow|tests|benchmarks|docs)(?:/[\w.-]+)+/?", span):
            assert (ROOT / span).exists(), span
        elif re.fullmatch(r"\w+(?:/\w+)*/\w+\.py", span):
            assert any((folder / span).exists() for folder in (ROOT, ROOT / "pipeline_src")), span
        elif found := re.match(r"((?:corpus|vocabulary|examples|model|pretrain|finetune)(?:\.[a-z_]+)+)(?::|$)", span):
            assert _is_parameter(found[1]), span


def _is_parameter(key: str) -> bool:
    from pipeline_src.study.study import Study

    block = Study
    for step in key.split("."):
        if step not in block.model_fields:
            return False
        block = block.model_fields[step].annotation
    return True


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@github.com:o/n.git", "https://github.com/o/n"),
        ("https://user:secret@git.example.org/o/n.git", "https://git.example.org/o/n"),
        ("ssh://git@example.org:2222/o/n", "https://example.org/o/n"),
        ("../elsewhere", ""),
    ],
)
def test_site_repository_link_has_no_password(tmp_path: Path, remote: str, address: str) -> None:
    """`make docs` appends the address to zensical.toml, so that the table `project` has to be the last."""
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "remote", "add", "origin", remote], cwd=tmp_path, check=True)
    command = ["make", "-s", "-f", str(ROOT / "Makefile"), "--eval", "show: ; @echo '$(REPOSITORY)'", "show"]
    shown = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()
    assert shown == address
    config = tomllib.loads(_text("zensical.toml") + f'repo_url = "{shown}"')
    assert config["project"]["repo_url"] == address and config["project"]["site_name"]


@pytest.mark.parametrize(
    ("kind", "task"), [("tags", "ner"), ("one text", "cola"), ("pair, each text by itself", "mrpc")]
)
def test_preset_evening_has_the_rates_of_the_lab_table(kind: str, task: str) -> None:
    preset = yaml.safe_load(preset_text("evening", ROOT / "workflow/presets"))
    finetune = check_study(preset).finetune
    recipe = finetune.recipe(task)
    values = (finetune.optimizer, recipe.learning_rates[0], recipe.head_learning_rate, recipe.epochs[0], recipe.dropout)
    row = " | ".join("–" if value is None else str(value) for value in values)
    assert f"| {kind} | mini | {row} |" in _text("docs/lab/fine-tuning-rates.md")


def test_site_navigation_has_every_page_that_exists_and_no_other() -> None:
    """zensical finds dead links in pages, but not in the navigation."""
    nav = [page for section in tomllib.loads(_text("zensical.toml"))["project"]["nav"] for page in section.values()]
    listed = {name for pages in nav for name in (pages if isinstance(pages, list) else [pages])}
    manual = {path.name for path in (ROOT / "docs").glob("*.md")}
    package = {f"api/{path.parent.name}.md" for path in (ROOT / "pipeline_src").glob("*/__init__.py")}
    other = {"index.md", "lab/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "catalogue.md"}
    assert listed == manual | package | other


def test_readme_filled_masks_equal_recorded_ones() -> None:
    """README.md against results/filled_masks.json, as committed or as it is here; by rank, not by digits."""
    examples = re.findall(r'\*\*(\w+)\*\*\s+for\s+"([^"]*)"', _text("README.md"))
    assert len(examples) == 3

    def predicts_them(recorded: str) -> bool:
        ranks = {(row["answer"], row["text"]): row["rank"] for row in json.loads(recorded)}
        return all(ranks.get((answer, " ".join(text.split())), math.inf) <= 3 for answer, text in examples)

    assert any(map(predicts_them, versions("results/filled_masks.json")))


def test_docs_graph_equals_dvc_yaml() -> None:
    """docs/architecture.md draws every stage of dvc.yaml, and no arrow that follows from others."""
    drawn = networkx.DiGraph()
    (picture,) = re.findall(r"^```mermaid\n(.*?)^```", _text("docs/architecture.md"), re.MULTILINE | re.DOTALL)
    for line in picture.splitlines():
        for before, after in pairwise(line.split("-->")):
            drawn.add_edges_from((a.strip(), b.strip()) for a in before.split("&") for b in after.split("&"))
    stages = {name: stage.get("do", stage) for name, stage in yaml.safe_load(_text("dvc.yaml"))["stages"].items()}
    del stages["pretrain"]  # of a third phase, which is optional
    encoder = yaml.safe_load(_text("workflow/presets/sample.yaml"))["finetune"]["model"]
    real = networkx.DiGraph()
    for name, stage in stages.items():
        read = {dep.replace("${finetune.model}", encoder).partition("/${")[0] for dep in stage["deps"]}
        for other, before in stages.items():
            outs = [next(iter(out)) if isinstance(out, dict) else out for out in before["outs"]]
            made = {out.partition("/${")[0] for out in outs}
            if any(f"{out}/".startswith(f"{dep}/") or f"{dep}/".startswith(f"{out}/") for out in made for dep in read):
                real.add_edge(other, name)
    assert set(real) == set(stages)
    assert set(drawn.edges) == set(networkx.transitive_reduction(real).edges)


def test_readme_scores_equal_recorded_summary() -> None:
    """README.md against results/summary.json, as committed or as it is here, and against docs/measurements.md."""
    readme, measurements = _text("README.md"), _text("docs/measurements.md")
    recorded = versions("results/summary.json")
    assert any(not _missing_figures(summary, readme) for summary in recorded), _missing_figures(recorded[0], readme)
    rows, some = ({tuple(row) for row in _score_rows(text)} for text in (measurements, readme))
    assert len(rows) == 39 and 5 < len(some) and some < rows
    real = {row for row in rows if not re.search(r"\((?:synthetic|from this corpus)\)", row[0])}
    assert real <= some  # whatever they came out as


def _score_rows(text: str) -> list[list[str]]:
    """Rows of the tables of scores, without their header."""
    return [row for row in _rows(text) if len(row) == 8 and re.fullmatch(r"-?\d+\.\d", row[2])]


def _missing_figures(summary: str, page: str) -> list[str]:
    """Keys of a summary whose value, rounded as the README rounds it, is not on the page."""
    missing = []
    for key, value in json.loads(summary).items():
        shown = f"{value:.3f}" if key.startswith("mlm") else f"{100 * value if key.startswith('nsp') else value:.1f}"
        if not re.search(rf"(?<![\d.]){re.escape(shown)}(?!\d)", page):
            missing.append(key)
    return missing


def test_docs_measurements_list_every_benchmark() -> None:
    rows = [row[0] for row in _rows(_text("docs/measurements.md"))]
    named = {match[1] for row in rows if (match := re.match(r"`(?:python -m benchmarks\.)?(\w+)(?:`| -)", row))}
    assert set(benchmark_names()) <= named
    stressed = {match[1] for row in rows if (match := re.match(r"`python -m tests\.stress\.(\w+)", row))}
    assert stressed == {path.stem for path in (ROOT / "tests/stress").glob("*.py")}


def test_docs_machine_yaml_equals_file() -> None:
    """docs/your-cluster.md against machine.yaml, as committed or as it is here."""
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", _text("docs/your-cluster.md"), re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(shown) in map(yaml.safe_load, versions("machine.yaml"))


def test_docs_data_page_equals_what_the_catalogue_prints() -> None:
    assert _text("docs/data.md") == data_page(), "write it again: python -m catalogue.page > docs/data.md"


def test_docs_tree_lists_every_folder() -> None:
    folders = {path.parent.name for path in (ROOT / "pipeline_src").glob("*/*.*") if path.suffix in (".py", ".md")}
    tree = _text("docs/architecture.md").partition("\npipeline_src/\n")[2].partition("```")[0]
    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == folders


def test_readme_and_manual_are_within_length_limits() -> None:
    assert len(_text("README.md").splitlines()) <= 90
    assert len(list((ROOT / "docs").glob("*.md"))) <= 15


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _rows(text: str) -> list[list[str]]:
    """Every row of every table."""
    lines = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_docs_custom_task_is_valid() -> None:
    text = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    # tests/unit/tasks/test_download_tasks.py fetches and reads the task of the hub.
    task, source, retrieval, topics, _, _ = map(yaml.safe_load, blocks)
    assert TaskSpec.model_validate({"name": "reviews", **task}).scores["reviews"].test
    assert TaskSpec.model_validate({"name": "nano_nq", **retrieval}).scores["nano_nq"].corpus
    assert TaskSpec.model_validate({"name": "topics", **topics}).kind == "multilabel"
    assert Source.model_validate(source).files[0].scheme == "file"


def test_docs_troubleshooting_messages_exist_in_code() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    ours = text[text.index("## Starting") : text.index("## Messages of other programs")]
    messages = re.findall(r"^\| `([^`]+)` \|", ours, re.MULTILINE)
    assert len(messages) > 60
    literals = set()
    for file in [*(ROOT / "pipeline_src").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
    missing = [message for message in messages if not any(message in words for words in literals)]
    assert not missing, missing
