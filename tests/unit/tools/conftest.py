"""Servers and catalogues of the tests of ``sources``, for the tool that lists a dump's parts."""

import argparse

import pytest

from tests.unit.sources.conftest import no_waiting, web

__all__ = ["no_waiting", "web"]


@pytest.fixture
def call():
    """Run a tool with command-line arguments."""

    def run(tool, *given) -> int | None:
        parser = argparse.ArgumentParser()
        tool.add_arguments(parser)
        return tool.main(parser.parse_args([str(argument) for argument in given]))

    return run
