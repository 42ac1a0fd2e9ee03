"""A model's folder for a hub: what is in it, its checksums and its history; and the table of a study's models."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from pipeline_src.base.errors import PipelineError
from pipeline_src.model.bert import BertConfig
from pipeline_src.model.model_card import finetuned_card, pretrained_card
from pipeline_src.tools import export, release
from tests.studies import ROOT

CONFIG = BertConfig(22, 16, 2, 2, 32, 12)
ENTRY = """\
  {stage}:
    cmd: python
    deps:
    - path: {dependency}
      hash: md5
      md5: {md5}
    outs:
    - path: {output}
      hash: md5
      md5: 0123
"""


def pretrained(step: int, steps: int, tokens: int) -> str:
    return pretrained_card(
        CONFIG,
        1_000,
        "masked words",
        "BertForPreTraining",
        None,
        {"seed": 7, "step": step},
        {"training text": {"mlm_loss": 3.0}, "validation text": {"mlm_loss": 4.5, "examples": 99}},
        {"steps": steps, "tokens": tokens},
    )


def finetuned() -> str:
    scores = [("MNLI-m", "dev_matched.tsv", "accuracy", 71.25), ("MNLI-mm", "dev_mismatched.tsv", "accuracy", 70.5)]
    return finetuned_card(
        CONFIG, "MNLI", "BertForSequenceClassification", None, {"seed": 1, "finetune_seed": 3}, scores
    )


@pytest.fixture
def models(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of two phases, a model kept on the way, and a fine-tuned model, as working directory."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "models"
    for name, card in {
        "pretrained/phase1": pretrained(400, 400, 1_000_000),
        "pretrained/phase2": pretrained(1_000, 600, 3_000_000),
        "pretrained/phase2/steps/500": pretrained(500, 100, 500_000),
        "finetuned/mnli/3/kept-model": finetuned(),
    }.items():
        shutil.copytree(folder, root / name)
        (root / name / "README.md").write_text(card, encoding="utf-8")
    (root / "pretrained/phase2/training_state").mkdir()
    lock = "schema: '2.0'\nstages:\n"
    for stage, dependency, output in (
        ("pretrain_phase1", "data/tokens", "models/pretrained/phase1"),
        ("pretrain_phase2", "models/pretrained/phase1", "models/pretrained/phase2"),
        ("finetune@mnli-3", "models/pretrained/phase2", "models/finetuned/mnli/3/kept-model"),
    ):
        lock += ENTRY.format(stage=stage, dependency=dependency, output=output, md5=f"{stage}.dir")
    Path("dvc.lock").write_text(lock)
    return root


def read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_release_has_model_card_citation_and_checksums(models, call, capsys):
    call(release, "models/pretrained/phase2", "made")
    names = {str(path.relative_to("made")) for path in Path("made").rglob("*") if path.is_file()}
    copied = {path.name for path in (models / "pretrained/phase2").iterdir() if path.is_file()}
    assert names == copied | {"CITATION.cff", ".zenodo.json", "release.json", "SHA256SUMS"}
    assert Path("made/CITATION.cff").read_bytes() == (ROOT / "CITATION.cff").read_bytes()
    zenodo = read(Path("made/.zenodo.json"))
    assert zenodo["title"] == "BERT, 2 layers, 16 wide" and zenodo["license"] == "notspecified"
    assert zenodo["creators"] == read(ROOT / ".zenodo.json")["creators"]
    sums = dict(line.split("  ")[::-1] for line in Path("made/SHA256SUMS").read_text().splitlines())
    assert sums == {
        name: hashlib.sha256(Path("made", name).read_bytes()).hexdigest() for name in names - {"SHA256SUMS"}
    }
    assert capsys.readouterr().out.splitlines()[-1] == "hf upload OWNER/NAME made ."


LOSS = [["validation text", "mlm_loss", "4.5"]]
ACCURACY = [["MNLI-m, dev_matched.tsv", "accuracy", "71.25"], ["MNLI-mm, dev_mismatched.tsv", "accuracy", "70.5"]]


@pytest.mark.parametrize(
    ("name", "step", "tokens", "seed", "scores", "dependency"),
    [
        ("pretrained/phase1", 400, 1_000_000, 7, LOSS, "data/tokens"),
        ("pretrained/phase2", 1_000, 4_000_000, 7, LOSS, "models/pretrained/phase1"),
        ("pretrained/phase2/steps/500", 500, 1_500_000, 7, LOSS, "models/pretrained/phase1"),
        ("finetuned/mnli/3/kept-model", None, 4_000_000, 3, ACCURACY, "models/pretrained/phase2"),
    ],
)
def test_release_json_has_step_tokens_of_all_phases_seed_scores_and_inputs(
    models, call, name, step, tokens, seed, scores, dependency
):
    call(release, f"models/{name}", "made")
    record = read(Path("made/release.json"))
    assert (record["step"], record["tokens"], record["seed"]) == (step, tokens, seed)
    assert record["scores"] == scores and list(record["inputs"]) == [dependency]


def test_release_json_has_commit_and_uncommitted_changes(models, call):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", "add", "dvc.lock"], check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "study"], check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    call(release, "models/pretrained/phase1", "clean")
    Path("dvc.lock").write_text(Path("dvc.lock").read_text() + "\n")
    call(release, "models/pretrained/phase1", "edited")
    assert read(Path("clean/release.json"))["commit"] == head
    assert read(Path("edited/release.json"))["commit"] == f"{head}-dirty"


def test_release_of_exported_model_keeps_pooling_and_of_release_equals_it(models, call):
    call(
        export,
        "exported",
        "--format",
        "sentence-transformers",
        "--model",
        "models/pretrained/phase1",
        "--pooling",
        "cls",
    )
    call(release, "exported", "made")
    assert read(Path("made/1_Pooling/config.json")) == read(Path("exported/1_Pooling/config.json"))
    assert read(Path("made/release.json"))["inputs"] == {}
    call(release, "made", "again")
    assert Path("again/SHA256SUMS").read_bytes() == Path("made/SHA256SUMS").read_bytes()


def test_release_of_model_without_card_or_dvc_lock_has_unknown_history(folder, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call(release, folder, "made")
    record = read(Path("made/release.json"))
    assert (record["step"], record["seed"], record["scores"], record["inputs"]) == (None, None, [], {})
    assert "made elsewhere" in Path("made/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "tables",
    [
        "| seed | 42 |\n| tokens | 3 billion |\n",
        "| parameter | value |\n| --- | --- |\n| seed | n/a |\n| step | every 10k |\n",
        "| what | amount |\n| --- | --- |\n| tokens | 3 billion |\n",
        "| layers | width | heads |\n| --- | --- | --- |\n| 12 | 768 | 12 |\n",
    ],
)
def test_release_of_card_made_elsewhere_has_unknown_history(folder, call, tmp_path, monkeypatch, tables):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, "elsewhere")
    Path("elsewhere/README.md").write_text(f"# T\n\n{tables}", encoding="utf-8")
    call(release, "elsewhere", "made")
    record = read(Path("made/release.json"))
    assert (record["step"], record["tokens"], record["seed"], record["scores"]) == (None, 0, None, [])


@pytest.mark.parametrize(
    ("name", "output", "message"),
    [
        ("nowhere", "made", "no model here: nowhere"),
        ("models/pretrained/phase1", "models", "output folder already exists: models"),
    ],
)
def test_release_bad_folder_is_rejected_and_writes_nothing(models, call, name, output, message):
    before = sorted(Path().rglob("*"))
    with pytest.raises(PipelineError, match=message):
        call(release, name, output)
    assert sorted(Path().rglob("*")) == before


def test_models_prints_table_of_pretrained_kept_and_finetuned_models(models, capsys):
    release.models(None)
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:3] for row in rows] == [
        ["models/pretrained/phase1", "400", "1,000,000"],
        ["models/pretrained/phase2", "1000", "4,000,000"],
        ["models/pretrained/phase2/steps/500", "500", "1,500,000"],
        ["models/finetuned/mnli/3/kept-model", "–", "4,000,000"],
    ]
    assert rows[3][3] == "MNLI-m, dev_matched.tsv accuracy 71.25; MNLI-mm, dev_mismatched.tsv accuracy 70.5"
    weights = models / "pretrained/phase1/model.safetensors"
    assert {row[4] for row in rows} == {hashlib.sha256(weights.read_bytes()).hexdigest()}


def test_release_leaves_out_generator_training_state_and_kept_models(models, call):
    shutil.copytree(models / "pretrained/phase1", models / "pretrained/phase2/generator")
    call(release, "models/pretrained/phase2", "made")
    assert [path for path in Path("made").iterdir() if path.is_dir()] == []


def test_release_of_read_only_model_succeeds_and_may_be_edited(models, call):
    """Files that DVC links from its cache are read-only."""
    for path in (models / "pretrained/phase1").iterdir():
        path.chmod(0o444)
    call(release, "models/pretrained/phase1", "made")
    assert all(path.stat().st_mode & 0o200 for path in Path("made").iterdir())
