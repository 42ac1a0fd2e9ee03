"""Servers and catalogues of the tests of ``sources``, for the tool that lists a dump's parts."""

from tests.unit.sources.conftest import no_waiting, project, web

__all__ = ["no_waiting", "project", "web"]
