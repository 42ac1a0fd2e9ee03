"""The commands of README.md and docs/, and which test runs each.

A command either has a mark (``# needs network`` behind it, or on a line of its own for the rest of its block) or is
in one of the lists below; any other fails ``test_docs.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NEEDS = re.compile(r"#.*?\bneeds (network|a cluster|GPUs|official data|a finished study)\b")
ASSIGNMENT = re.compile(r"[A-Z_]+=")

# Run by test_docs.py itself: they take seconds, and change nothing or a copy of params.yaml alone.
AT_ONCE = (
    "python -m pipeline_src --help",
    "python -m pipeline_src doctor",
    "python -m pipeline_src preset --list",
    "python -m pipeline_src preset test",
    "python -m pipeline_src preset bert-base",
    "python -m pipeline_src preset bert-mini",
    "python -m pipeline_src preset roberta-base",
    "python -m pipeline_src preset multilingual",
    "python -m pipeline_src plan",
    "python -m pipeline_src plan --preset bert-base --gpus 8 --teraflops 300 --price 3",
    "python -m pipeline_src plan --gpus 8 --teraflops 300 --price 3",
    "python -m pipeline_src ablations table5",
)
# Run by test_documented_commands.py, in this order, in a copy of the finished study of the `test` preset.
AFTER_A_STUDY = (
    "mkdir -p data/own/text",
    "snakemake --cores 2 corpus_statistics",
    "dvc plots show -x step logs/dvclive/phase1/plots/metrics",
    "dvc exp show --only-changed",
    "dvc exp save -n more-masks",
    "dvc remote add --default storage /shared/dvc/bert",
    "dvc remote modify storage verify true",
    "dvc push --run-cache",
    "dvc pull --run-cache",
    "python -m pipeline_src show-examples --phase phase1 --count 5",
    "python -m pipeline_src corpus-stats",
    "python -m json.tool --json-lines --no-ensure-ascii data/text/wikipedia/clean-text/dropped.jsonl",
    "python -m pipeline_src export my-examples --format parquet",
    'python -m pipeline_src fill-mask "The cat sat on the [MASK]." --top 5',
    "python -m pipeline_src export my-encoder --format sentence-transformers",
    "python -m pipeline_src release models/pretrained/phase2 my-release",
    "python -m pipeline_src models",
    "python -m pipeline_src verify models/pretrained/phase1 models/pretrained/phase2",
    'python -m pipeline_src attention "He is running a company." --output attention.html',
    "python -m pipeline_src inspect page.html",
    "python -m pipeline_src import models/pretrained/phase2 models/imported/mine",
    'python -m pipeline_src fill-mask "The cat sat on the [MASK]." --model models/imported/mine',
    "python -m pipeline_src predict rte data/tasks/rte/test.tsv --output predictions.jsonl",
    "cp -r models/finetuned/mnli/1/kept-model models/mnli",
    "dvc exp run -S 'finetune.defaults.label_counts=[100,500,2000]'",
    "dvc exp run -S finetune.model=models/mnli -S 'tasks=[rte,mrpc,stsb]'",
    "dvc repro -f -s download_tasks",
    "dvc repro -f download@books",
    "dvc repro -f download@wikipedia",
)
# Run by test_two_engines.py on the toy study.
SECOND_CHECKOUT = (
    "git clone . ../edit",
    "cd ../edit",
    'dvc cache dir --local "$OLDPWD/.dvc/cache"',
    "dvc checkout --allow-missing",
)
READ_ONLY_CACHE = (
    "dvc cache dir --local .dvc/cache",
    "dvc remote add --local --default shared /shared/dvc/bert",
    "dvc pull --run-cache",
)
CLEAR_KILLED = "rm -rf .dvc/tmp/exps/standalone .dvc/tmp/exps/run .dvc/tmp/exps/tmp*"
# Run by the test named, at the scale of that test.
TOY = "tests/workflow/test_two_engines.py"
REAL, BOTH = "tests/workflow/test_real_study.py", "test_snakemake_all_leaves_both_engines_nothing_to_do"
GPU = "tests/unit/training/test_benchmark_gpu.py"
EXPERIMENT = "test_dvc_exp_run_of_mask_prob_runs_pretraining_and_later_stages"
COMMENTS = "test_machine_yaml_comments_and_tools_make_no_stage_stale"
ELSEWHERE = {
    **dict.fromkeys(SECOND_CHECKOUT, f"{TOY}::test_second_checkout_with_shared_cache_runs_no_stage"),
    **dict.fromkeys(READ_ONLY_CACHE[:2], f"{TOY}::test_cache_of_another_user_is_linked_or_used_as_remote"),
    CLEAR_KILLED: f"{TOY}::test_killed_experiments_are_cleared",
    "snakemake --cores 2 all": f"{REAL}::{BOTH}",
    "snakemake -n all": f"{REAL}::{BOTH}",
    "dvc status": f"{REAL}::{BOTH}",
    "dvc repro": f"{REAL}::{BOTH}",
    "dvc repro -s code": f"{REAL}::{COMMENTS}",
    "dvc metrics diff": f"{REAL}::{EXPERIMENT}",
    "dvc plots show": f"{REAL}::{EXPERIMENT}",
    "dvc exp run -S mask_prob=0.2": f"{REAL}::{EXPERIMENT}",
    "python -m benchmarks.gpu --rehearse --out /tmp/rehearsal": f"{GPU}::test_benchmark_gpu_rehearses_rates",
    "dvc exp run -S 'finetune.defaults.learning_rates=[5e-5,3e-5]' -S 'finetune.seeds=[1,2,3]'": (
        "tests/unit/finetune/test_finetune.py::test_finetune_grid_saves_best_run_and_predicts_test_file"
    ),
}
# name in the docs -> value in the tests
STANDING = {"/shared/dvc/bert": "../storage", "finetuned/mnli/": "finetuned/swag/"}
# Pages whose Python blocks test_documented_commands.py runs in the same folder.
RECIPES = ("docs/adapt.md", "docs/interpretation.md", "docs/own-corpus.md")


@dataclass(frozen=True)
class Command:
    """A line of a fenced bash block.

    Attributes:
        file: path of the page, from the root.
        text: the command without its comment, continued lines joined.
        needs: its mark; None if it must run anywhere.
    """

    file: str
    text: str
    needs: str | None


def commands(root: Path) -> list[Command]:
    """Return the commands of README.md and docs/, in order."""
    return [command for file in pages(root) for command in _of(file, str(file.relative_to(root)))]


def recipes(root: Path) -> list[str]:
    """Return the programs in the Python blocks of RECIPES."""
    return [program for page in RECIPES for program in programs(root / page)]


def programs(page: Path) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def pages(root: Path) -> list[Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def _of(file: Path, name: str) -> Iterator[Command]:
    for block in re.findall(r"^```bash\n(.*?)^```", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        marked = None
        for line in block.replace("\\\n", " ").splitlines():
            needs = NEEDS.search(line)
            text = re.split(r"(?:^|\s)#\s", line)[0].strip()
            if not text:
                marked = needs[1] if needs else marked
                continue
            yield Command(name, " ".join(text.split()), needs[1] if needs else marked)
