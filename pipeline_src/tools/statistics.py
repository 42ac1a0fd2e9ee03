"""Tool ``statistics``: what the corpus stages have made so far, as JSON."""

from __future__ import annotations

import argparse
import json

from pipeline_src.params.study import load_study
from pipeline_src.statistics.corpus_statistics import corpus_statistics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``statistics`` takes no arguments."""


def main(arguments: argparse.Namespace) -> None:
    """Print the statistics of the study in params.yaml; errors as in ``corpus_statistics``."""
    study = load_study()
    print(json.dumps(corpus_statistics(study.wikipedia.parts, study.tasks), indent=2, ensure_ascii=False))
