"""Stage ``code``: check params.yaml, and write the fingerprint of every stage's code, which DVC compares.

It runs first, since all other stages depend on its files: ``code/STAGE`` for each stage, ``code/models/NAME`` and
``code/objectives/NAME`` for each member of the family, and ``code/cleaners/KIND`` for each kind of source, which
dvc.yaml names by the parameter that selects it. An edit of comments or docstrings changes none of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from pipeline_src.common.errors import PipelineError
from pipeline_src.common.files import atomic_directory
from pipeline_src.common.fingerprint import MEMBER_FOLDERS, fingerprint
from pipeline_src.common.paths import CODE
from pipeline_src.common.progress import log
from pipeline_src.common.registry import member_names
from pipeline_src.common.yaml_files import CATALOGUE
from pipeline_src.config.data import CorpusParams
from pipeline_src.corpus.clean import CLEANERS
from pipeline_src.corpus.language import check_language
from pipeline_src.stages import STAGES


def untracked_entries() -> str | None:
    """Return a warning that names the catalogue's entries that git does not know; None without any."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "--", CATALOGUE]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:  # no git
        return None
    known = "`dvc exp save`, `dvc exp run --temp` and clones leave out what git does not know"
    return f"{known}: git add {' '.join(names)}" if names else None


def modules() -> dict[str, str]:
    """Return path below ``code`` -> module of the fingerprint."""
    found = {name: stage.module for name, stage in STAGES.items() if name != "code"}
    for folder in MEMBER_FOLDERS:
        found |= {f"{folder}/{name}": f"pipeline_src.{folder}.{name}" for name in member_names(folder)}
    return found | {f"cleaners/{kind}": module for kind, module in CLEANERS.items()}


def run(corpus: CorpusParams) -> None:
    """Write ``code``. As for every stage, params.yaml was checked before.

    Raises:
        PipelineError: a filter of a source takes a library that is not installed, or a language that it does not know.
    """
    for name, source in corpus.sources.items():
        check_language(source.filters, source.language, name)
    if said := untracked_entries():
        log.warning("%s", said)
    with atomic_directory(CODE) as written:
        for name, module in modules().items():
            (written / name).parent.mkdir(parents=True, exist_ok=True)
            (written / name).write_text(f"{fingerprint(module)}\n", encoding="utf-8")


def check_unchanged_code(names: Iterable[str]) -> None:
    """Stop a stage whose code was edited since the run began: DVC would record other code.

    Args:
        names: paths below ``code`` that the stage depends on.

    Raises:
        PipelineError: a fingerprint differs from that of the present code.
    """
    module_of = modules()
    for name in names:
        recorded = CODE / name
        if recorded.exists() and recorded.read_text(encoding="utf-8").strip() != fingerprint(module_of[name]):
            raise PipelineError(
                "the code was edited since this run began", name,
                hint="start again (`snakemake all` or `dvc repro`): what was finished is kept",
            )  # fmt: skip
