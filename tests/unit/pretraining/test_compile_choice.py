"""When compiling pays for itself."""

import logging

import pytest

from pipeline_src.pretraining.compile_choice import choose_compile

PEAK = 1e15
FIVE_MINUTES = 300 * 0.25 * PEAK  # FLOPs


@pytest.fixture(autouse=True)
def a_compiler(monkeypatch):
    monkeypatch.setenv("CC", "cc")


@pytest.mark.parametrize(
    ("flops", "expected", "said"), [(1.01, True, "compiled"), (0.99, False, "not compiled: some 297")]
)
def test_auto_compiles_what_takes_over_five_minutes(caplog, flops, expected, said):
    with caplog.at_level(logging.INFO):
        assert choose_compile("auto", flops * FIVE_MINUTES, PEAK) is expected
    assert caplog.messages[-1].startswith(said)


def test_twice_the_gpus_take_half_the_time():
    assert not choose_compile("auto", 1.5 * FIVE_MINUTES, 2 * PEAK)


def test_without_a_c_compiler_auto_does_not(caplog, monkeypatch):
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    with caplog.at_level(logging.INFO):
        assert choose_compile("auto", 9 * FIVE_MINUTES, PEAK) is False
    assert "no C compiler" in caplog.messages[-1]


@pytest.mark.parametrize("wanted", [True, False])
def test_what_machine_yaml_says_holds(wanted):
    assert choose_compile(wanted, 0 if wanted else 9 * FIVE_MINUTES, PEAK) is wanted
