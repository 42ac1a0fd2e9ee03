"""machine.yaml: settings of this machine, on which no stage depends."""

import os
import platform
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.study.machine import PORTABLE, Machine, load_machine
from pipeline_src.study.study import Study
from tests.studies import versions, write_params


def test_machine_yaml_lists_every_setting_with_its_default():
    """As committed or as it is here, where its owner may have set other values."""
    machine = Machine()
    # Recomputing activations in fine-tuning is for large models alone, and not in the file.
    default = machine.model_dump(mode="json", exclude={"finetune": {"activation_checkpointing"}})
    assert default in map(yaml.safe_load, versions("machine.yaml"))
    assert {"attention", "threads", "microbatch_tokens"} < machine.settings("finetune").keys()
    assert machine.settings("pretrain")["sharding"] == "none"


def test_load_machine_missing_file_or_key_uses_defaults(tmp_path):
    assert load_machine(tmp_path / "machine.yaml") == Machine()
    (tmp_path / "machine.yaml").write_text("pretrain: {threads: 4}\n")
    assert load_machine(tmp_path / "machine.yaml").pretrain.threads == 4
    for written, read in (("true", True), ("false", False), ("auto", "auto")):
        (tmp_path / "machine.yaml").write_text(f"compile: {written}\n")
        assert load_machine(tmp_path / "machine.yaml").compile == read


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("pretrain: {threads: 0}", r"pretrain\.threads = 0"),
        ("pretrain: {sharding: weights}", r"pretrain\.sharding = 'weights'"),
        ("tracking: [neptune]", r"tracking\.0 = 'neptune'"),
        ("tracking: [dvclive, dvclive]", "tracking"),
        ("finetune: {sharding: full_shard}", r"unknown key: finetune\.sharding"),
        ("attention: fast", "attention = 'fast'"),
        ("compile: sometimes", "compile.* = 'sometimes'"),
        ("precision: float16", r"precision = 'float16'"),
        ("pretrain: {thread: 2}", r"unknown key: pretrain\.thread"),
        ("- 1", "the file has no keys"),
        ("a: [", "invalid YAML file"),
    ],
)
def test_load_machine_invalid_setting_is_rejected(tmp_path, text, key):
    (tmp_path / "machine.yaml").write_text(text)
    with pytest.raises(PipelineError, match=key):
        load_machine(tmp_path / "machine.yaml")


# A folder called wandb is no package.
SPECS = {"tensorboard": ModuleSpec("tensorboard", None, origin="tensorboard.py"), "wandb": ModuleSpec("wandb", None)}


@pytest.mark.parametrize("value", ["0", "many"])
def test_load_machine_wrong_type_error_lists_allowed_types(tmp_path, value):
    (tmp_path / "machine.yaml").write_text(f"pretrain: {{microbatch_tokens: {value}}}\n")
    with pytest.raises(PipelineError) as caught:
        load_machine(tmp_path / "machine.yaml")
    assert str(caught.value.value).startswith("pretrain.microbatch_tokens = ")
    assert "constrained" not in str(caught.value)
    assert caught.value.hint.endswith(" or 'auto'")


def test_load_machine_tracker_not_installed_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline_src.study.machine.find_spec", SPECS.get)
    (tmp_path / "machine.yaml").write_text("tracking: [dvclive, tensorboard, wandb]\n")
    with pytest.raises(PipelineError, match="not installed: wandb\n.*tracking\n.*`pip install wandb`"):
        load_machine(tmp_path / "machine.yaml")
    (tmp_path / "machine.yaml").write_text("tracking: [dvclive, tensorboard]\n")
    assert load_machine(tmp_path / "machine.yaml").tracking == ("dvclive", "tensorboard")


STAGE = """
import sys, types
from pipeline_src import __main__ as command
from pipeline_src.stages import Stage

def run():
    import torch
    from numpy._core._multiarray_umath import __cpu_features__
    print(torch.backends.cpu.get_cpu_capability(), __cpu_features__["X86_V4"])

sys.modules["probe"] = types.SimpleNamespace(run=run)
command.STAGES["probe"] = Stage("probe", "")
sys.exit(command.main(["probe"]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has several code paths here")
def test_choose_code_paths_stage_runs_with_avx2_paths(root, tmp_path):
    write_params(tmp_path)
    (tmp_path / "catalogue").symlink_to(root / "catalogue")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", STAGE], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["AVX2", "False"]


def test_choose_code_paths_without_avx2_warns_and_changes_nothing(tmp_path, monkeypatch, caplog):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("flags : sse4_2 avx avx512_avx2like")
    monkeypatch.setattr("pipeline_src.study.machine.CPUINFO", cpuinfo)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    before = dict(os.environ)
    Machine().choose_code_paths()
    assert dict(os.environ) == before and "no AVX2" in caplog.text
    cpuinfo.write_text("flags : sse4_2 avx2\n")
    Machine().choose_code_paths()
    assert os.environ["ATEN_CPU_CAPABILITY"] == "avx2"


def test_choose_code_paths_keeps_mkl_mode_set_by_user(monkeypatch):
    for name in ("MKL_CBWR", *PORTABLE):
        monkeypatch.setenv(name, "COMPATIBLE")
    Machine(portable=False).choose_code_paths()
    assert {os.environ[name] for name in PORTABLE} == {"COMPATIBLE"}
    Machine().choose_code_paths()
    if platform.machine() == "x86_64":
        assert os.environ["MKL_CBWR"] == "COMPATIBLE" and os.environ["ATEN_CPU_CAPABILITY"] == "avx2"


def test_machine_settings_make_no_stage_stale(root):
    assert "machine.yaml" not in (root / "dvc.yaml").read_text()
    settings = {*Machine().settings("pretrain"), *Machine().settings("finetune")}
    assert {"threads", "attention", "sharding"} <= settings
    for name in ("model", "pretrain", "finetune"):
        assert not settings & set(Study.model_fields[name].annotation.model_fields)
