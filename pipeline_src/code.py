"""Stage ``code``: validate params.yaml, and write fingerprints of the stages' code, which DVC compares.

It runs first, since all other stages depend on its files:

- ``code/STAGE`` for each stage,
- ``code/models/NAME`` and ``code/objectives/NAME`` for each architecture and objective,
- ``code/cleaners/KIND`` for each kind of source.

In dvc.yaml, NAME and KIND are filled in from params.yaml. Edits of comments or docstrings change none of these files.

The stage also downloads the Hugging Face hub models in params.yaml. The model ``hub:OWNER/NAME@REVISION`` becomes a
folder with exactly this path, which other stages read like any model's folder.

In dvc.yaml, the stage's output is marked ``persist``, so DVC always runs the stage and never restores its output from
the run-cache.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from pipeline_src.base.errors import PipelineError
from pipeline_src.base.files import atomic_directory
from pipeline_src.base.paths import CODE
from pipeline_src.base.progress import log
from pipeline_src.base.registry import CORE, members
from pipeline_src.base.yaml_files import CATALOGUE
from pipeline_src.engine.dependencies import changed_files, declared_stages, sign
from pipeline_src.engine.fingerprint import ROOT, covered_files, fingerprint, statements_of
from pipeline_src.engine.workspace import check_outputs
from pipeline_src.stages import STAGES
from pipeline_src.study.cross_checks import is_made_here
from pipeline_src.study.data import CorpusParams
from pipeline_src.study.finetune import FinetuneParams
from pipeline_src.study.pretrain import PretrainParams
from pipeline_src.study.schema import HUB, NO_TEACHER
from pipeline_src.text.clean import CLEANERS
from pipeline_src.text.language import check_language


def untracked_entries() -> str | None:
    command = ["git", "ls-files", "--others", "--exclude-standard", "--", CATALOGUE]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        # git is not installed.
        return None
    warning = "`dvc exp save`, `dvc exp run --temp` and clones leave out what git does not know"
    return f"{warning}: git add {' '.join(names)}" if names else None


def modules() -> dict[str, str]:
    # Returns path below code/ -> the module whose fingerprint is written there.
    stages = {}
    for name, stage in STAGES.items():
        # Skip a stage whose optional folder, such as interpret/, was removed.
        folder = (ROOT / stage.module.replace(".", "/")).parent
        if name != "code" and folder.is_dir():
            stages[name] = stage.module
    for kind in CORE:
        for name, member in members(kind).items():
            stages[f"{kind}/{name}"] = member.module
    return stages | {f"cleaners/{kind}": module for kind, module in CLEANERS.items()}


def fetch_models(paths: Iterable[str]) -> None:
    # Downloads the models whose path is such as hub:OWNER/NAME@REVISION into a folder of that path.
    for path in sorted(set(paths)):
        if path.startswith(HUB) and not Path(path).exists():
            # Imported here, since it imports torch.
            from pipeline_src.pretrain.import_model import fetch_and_import

            with atomic_directory(path) as folder:
                fetch_and_import(Path(path), folder)


def check_models(pretrain: PretrainParams, finetune: FinetuneParams) -> None:
    """Check that the folders of models which no stage makes are there, before any work."""
    folders = {
        "pretrain.teacher": pretrain.teacher,
        "finetune.teacher": finetune.teacher,
        "finetune.model": finetune.model,
    }
    for key, name in folders.items():
        folder = Path(name)
        is_made_later = name.startswith(HUB) or is_made_here(folder)
        if name != NO_TEACHER and not is_made_later and not folder.is_dir():
            hint = f"copy the model there, or change {key} in params.yaml"
            raise PipelineError("there is no such folder", name, where=f"params.yaml, {key}", hint=hint)


def run(corpus: CorpusParams, pretrain: PretrainParams, finetune: FinetuneParams) -> None:
    """Write the fingerprints to ``code/`` and download hub models. params.yaml has already been validated."""
    for name, source in corpus.sources.items():
        check_language(source.filters, source.language, name)
    warning = untracked_entries()
    if warning:
        log.warning("%s", warning)
    check_outputs(chain.from_iterable(stage["outs"] for stage in declared_stages().values()))
    check_models(pretrain, finetune)
    fetch_models([pretrain.init_from, finetune.model])
    with atomic_directory(CODE) as folder:
        for name, module in modules().items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{fingerprint(module)}\n", encoding="utf-8")


class StageCode:
    """Detects edits of a stage's code while the stage runs.

    A module is read when it is first imported, which may be long after the start. Workers import it again, and data
    files are read when they are used. So an edit after the start may affect the results, but DVC records the
    fingerprint from before the edit.

    Args:
        names: paths below ``code/`` that the stage depends on.
    """

    def __init__(self, names: Iterable[str]) -> None:
        module_of = modules()
        self._modules = {name: module_of[name] for name in names}
        files = self._files()
        self._signature = sign(files)
        self._sources = {file: file.read_bytes() for file in files}
        self._recorded = self._read_recorded()
        for name, recorded in self._recorded.items():
            if recorded and recorded != fingerprint(self._modules[name]):
                raise _edited(name)

    def import_all(self) -> None:
        # Import all modules now, so that later edits do not affect this process.
        for file in self._sources:
            if file.suffix == ".py":
                name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                # A module may need an optional library that is not installed.
                with contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(name)
        self.check_unchanged()

    def check_unchanged(self, imported: bool = False) -> None:
        """Raise an error if the code was edited since the start, except for comments and docstrings.

        Args:
            imported: whether ``import_all`` was called. Then only edits of data files count.
        """
        # The fingerprints differ if someone edited the code and ran the stage `code` meanwhile.
        if self._read_recorded() != self._recorded:
            raise _edited(f"{CODE}/")
        for path in changed_files(self._signature, self._files()):
            if imported and path.endswith(".py"):
                continue
            if not self._same_statements(Path(path)):
                raise _edited(os.path.relpath(path, ROOT))

    def _read_recorded(self) -> dict[str, str]:
        # Compare the text, not the times: a rerun of the stage `code` may write equal fingerprints again.
        recorded = dict.fromkeys(self._modules, "")
        for name in recorded:
            if (CODE / name).exists():
                recorded[name] = (CODE / name).read_text(encoding="utf-8").strip()
        return recorded

    def _files(self) -> list[Path]:
        files: set[Path] = set()
        for module in self._modules.values():
            files.update(*covered_files(module))
        return sorted(files)

    def _same_statements(self, file: Path) -> bool:
        source = self._sources.get(file)
        if source is None or file.suffix != ".py" or not file.exists():
            return False
        edited = file.read_bytes()
        if edited == source:
            # The file was written again with the same bytes: an edit that was undone. A module may have been imported
            # in between, so this counts as an edit.
            return False
        try:
            return statements_of(edited) == statements_of(source)
        except SyntaxError:
            return False


def _edited(name: str) -> PipelineError:
    hint = "start again (`snakemake all` or `dvc repro`); finished stages do not run again"
    return PipelineError("the code was edited since this run began", name, hint=hint)
