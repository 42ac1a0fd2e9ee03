from __future__ import annotations

import pickle

from pipeline_src.base.errors import PipelineError


def test_pipeline_error_text_is_pickled_truncated_and_escaped():
    error = pickle.loads(pickle.dumps(PipelineError("bad page", 7, where="dump.xml:3", hint="fetch it again")))
    assert str(error) == "bad page: 7\n  where:  dump.xml:3\n  hint: fetch it again"
    assert str(PipelineError("bad", "\x1b[1m\ud800\na", hint="fix it")) == "bad: \\x1b[1m\\ud800\na\n  hint: fix it"
    assert str(PipelineError("bad", "x" * 2001, hint="y")) == f"bad: {'x' * 2000}…\n  hint: y"
