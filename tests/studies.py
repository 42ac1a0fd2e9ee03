"""What the tests of several folders make: studies, clean text, vocabularies and models.

The fixture ``project`` of ``tests/conftest.py`` is an empty working directory to make them in.
"""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from pipeline_src.study.data import CorpusParams
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import Study, check_study
from pipeline_src.text.documents import Document, write_manifest, write_shard
from pipeline_src.tokenizer.special_tokens import Template, Templates

ROOT = Path(__file__).resolve().parents[1]
PRESETS = ROOT / "workflow/presets"
KINDS = {"wikipedia": {"kind": "wikipedia", "parts": ("a",)}, "books": {"kind": "books"}}


def load_preset(preset: str, **changes: Any) -> Study:
    """Check a preset; ``changes`` replace its values, key by key within a section."""
    params = yaml.safe_load(preset_text(preset, PRESETS))
    for key, value in changes.items():
        params[key] = params[key] | value if isinstance(value, dict) else value
    return check_study(params)


def write_params(folder: Path = Path(), preset: str = "test") -> None:
    """Write params.yaml."""
    (folder / "params.yaml").write_text(preset_text(preset, PRESETS))


def corpus_of(*sources: str, **params: Any) -> CorpusParams:
    """Sources of these names, or a Wikipedia and books; stages after ``clean`` read nothing of them but the name."""
    blocks = {name: {"kind": "text", "from": "x"} | KINDS.get(name, {}) for name in sources or KINDS}
    return CorpusParams(sources=blocks, **params)


def write_clean_text(source: str, documents: Iterable[Document], root: Path = Path(), **about: Any) -> Path:
    """Write one shard, and what the manifest says ``about`` it, as the stage ``clean`` does; return the folder."""
    folder = root / "data/text" / source / "clean-text"
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, [write_shard(folder / "x.jsonl", documents)], about.pop("dropped", {}), **about)
    return folder


def read_dropped(folder: Path) -> list[dict[str, Any]]:
    """Return the sampled documents of a stage's dropped.jsonl."""
    return [json.loads(line) for line in (folder / "dropped.jsonl").read_bytes().splitlines()]


def bert_templates(cls: int, sep: int) -> Templates:
    """[CLS] A [SEP] and [CLS] A [SEP] B [SEP] of these ids, without a tokenizer."""
    return Templates(Template(((cls,), (sep,)), (0, 0, 0)), Template(((cls,), (sep,), (sep,)), (0, 0, 0, 1, 1)))


def in_twos(text: str) -> list[str]:
    """A segmenter: words of two letters each."""
    letters = "".join(text.split())
    return [letters[start : start + 2] for start in range(0, len(letters), 2)]


def install_segmenter(folder: Path, package: str = "in_twos", code: str = inspect.getsource(in_twos)) -> str:
    """Install version 1.0 of a package of one module, as pip does; return the folder, which belongs on sys.path."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / f"{package}.py").write_text(code)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "RECORD").write_text(f"{package}.py,,\n{about.name}/METADATA,,\n{about.name}/RECORD,,\n")
    return str(folder)


def versions(name: str, root: Path = ROOT) -> list[str]:
    """Return the text of a file as committed, then as it is in the working tree.

    What the documentation says has to agree with one of them: `make study` changes the second alone, and a maintainer
    who records a study changes both it and the documentation before the commit. Without git, as in a source archive,
    or with a file that was never committed, only the second is returned.
    """
    shown = subprocess.run(["git", "show", f"HEAD:./{name}"], cwd=root, capture_output=True, check=False)
    texts = [shown.stdout.decode()] if shown.returncode == 0 else []
    if (root / name).exists():  # a stage that was interrupted leaves no output
        texts.append((root / name).read_text(encoding="utf-8"))
    return texts
