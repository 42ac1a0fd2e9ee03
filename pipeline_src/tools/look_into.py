"""Tool ``look-into``: all that stage ``interpret`` measures, of any model folder, as one page."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pipeline_src.common.files import atomic_file, read_json
from pipeline_src.interpretation.interpret import write_measures
from pipeline_src.interpretation.study import Study
from pipeline_src.params.study import load_study
from pipeline_src.report.interpretation import FILES
from pipeline_src.report.interpretation_page import render_interpretation
from pipeline_src.tools.open_model import DEFAULT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tool's own arguments."""
    parser.add_argument("output", type=Path, help="the HTML page to write")
    parser.add_argument("--model", type=Path, default=DEFAULT, help=f"folder of the model (default {DEFAULT})")


def main(arguments: argparse.Namespace) -> None:
    """Measure a model on the text and tasks of the study at hand, and write the page; nothing of the study changes.

    Raises:
        PipelineError: no model, or no study.
    """
    study = load_study()
    looked = Study(
        study.seed, study.interpretation, tuple(study.wikipedia.parts), study.corpus.validation, study.tasks,
        arguments.model, study.model.positions_start,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "interpretation"
        write_measures(looked, folder)
        parts = {name: read_json(folder / f"{name}.json") for name in FILES}
    with atomic_file(arguments.output) as file:
        file.write(render_interpretation(parts))
