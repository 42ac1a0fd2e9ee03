"""How much of the corpus comes over the wire."""

from __future__ import annotations

from pathlib import Path

import yaml

from pipeline_src.common.catalogue import SOURCES
from pipeline_src.params.study import Study
from pipeline_src.tools.planning.corpus_sizes import CorpusSizes


def wheel(digit: str, size: int) -> dict[str, object]:
    tags = {"platforms": ["any"], "python_version": "3.11", "implementation": "py", "abi": "none"}
    return {"checksum": f"sha256:{digit * 64}", "bytes": size, **tags}


def test_a_wheel_is_fetched_whole_and_once(catalogue: Path, root: Path) -> None:
    wheels = {"a": wheel("a", 1000), "b": wheel("a", 1000), "c": wheel("c", 30)}
    files = [{"path": name, "url": f"pypi:x==1/{name}", "bytes": 5, "wheel": one} for name, one in wheels.items()]
    entry = {"description": "d", "licence": "l", "citation": "c", "files": files}
    (catalogue / "sources/mine.yaml").write_text(yaml.safe_dump(entry))
    study = Study(**yaml.safe_load((root / "params.yaml").read_text()))
    corpus = CorpusSizes(study, {}.get)
    assert corpus.download(SOURCES, "mine") == 1030
    assert corpus.download(SOURCES, "shakespeare-sample") == 2_061_715
