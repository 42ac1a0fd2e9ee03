"""Stage ``code``: check params.yaml, and write the fingerprint of every stage's code for DVC to compare.

It runs first, since all other stages depend on its files: ``code/STAGE`` for each stage and
``code/architectures/NAME`` and ``code/objectives/NAME`` for each member of the family, which dvc.yaml names by the
parameter that chooses it. An edit that changes no statement changes none of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.common.fingerprint import MEMBER_FOLDERS, fingerprint
from pipeline_src.common.members import member_names
from pipeline_src.common.paths import CODE
from pipeline_src.stages import STAGES


def modules() -> dict[str, str]:
    """Path below ``code`` -> the module whose fingerprint it holds."""
    found = {name: stage.module for name, stage in STAGES.items() if name != "code"}
    for folder in MEMBER_FOLDERS:
        found |= {f"{folder}/{name}": f"pipeline_src.{folder}.{name}" for name in member_names(folder)}
    return found


def run() -> None:
    """Write ``code``. That params.yaml is valid was checked before, as for every stage."""
    with atomic_directory(CODE) as written:
        for name, module in modules().items():
            (written / name).parent.mkdir(parents=True, exist_ok=True)
            (written / name).write_text(f"{fingerprint(module)}\n", encoding="utf-8")


def check_unchanged_code(names: Iterable[str]) -> None:
    """Stop before a stage runs other code than DVC would record: it was edited since the run began.

    Args:
        names: paths below ``code`` that the stage depends on.

    Raises:
        PipelineError: a fingerprint is not that of the code now.
    """
    module_of = modules()
    for name in names:
        recorded = CODE / name
        if recorded.exists() and recorded.read_text(encoding="utf-8").strip() != fingerprint(module_of[name]):
            raise PipelineError(
                "the code was edited since this run began", name,
                remedy="start again (`snakemake all` or `dvc repro`): what was finished is kept",
            )  # fmt: skip
