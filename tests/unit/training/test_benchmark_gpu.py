"""The quarter of an hour of a GPU, rehearsed: pieces, their time, what a second call repeats, what comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from benchmarks import _gpu_session, gpu
from benchmarks._gpu_session import Session, read_piece
from benchmarks._gpu_steps import SHAPES, VARIANTS, Variant, fastest
from benchmarks._gpu_study import (
    PIECE_BYTES,
    TRAINED,
    make_tiny_study,
    pack_model,
    pack_study,
    planned_steps,
    set_tasks,
    study_folder,
    trained_model,
    wheels_command,
)
from benchmarks.gpu import PIECES, Piece, main

HERE = "tests.unit.training.test_benchmark_gpu"


def quick(session: Session) -> None:
    session.cell("one", lambda: {"figure": 1}, variant="eager")


def sleeps(session: Session) -> None:
    """Ends by itself only in a second call."""
    session.cell("before", lambda: {"figure": 1})
    session.cell("slow", lambda: time.sleep(0 if (session.out / "hurry").exists() else 600) or {"figure": 2})


def deaf(session: Session) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    session.cell("slow", lambda: time.sleep(600) or {})


def dies(session: Session) -> None:
    """Its process is killed in the second of three cells."""
    session.cell("first", lambda: {"figure": 1})
    session.cell("second", lambda: signal.raise_signal(signal.SIGKILL) or {})
    session.cell("third", lambda: {"figure": 3})


def raises(session: Session) -> None:
    session.cell("wrong", lambda: {"figure": 1 // 0}, variant="eager")
    session.cell("right", lambda: {"figure": 1})


def lacks(session: Session) -> None:
    raise SystemExit("error: something is not here")


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put functions of this module in the place of the pieces."""

    def put(**minutes: float) -> None:
        monkeypatch.setattr(gpu, "PIECES", {name: Piece(each, "", f"{HERE}:{name}") for name, each in minutes.items()})

    return put


def call(out: Path, *more: str) -> int:
    return main(["--rehearse", "--out", str(out), *more])


def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "back/results.json").read_text())


def test_benchmark_gpu_rehearses_rates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(tmp_path, "--pieces", "rates") == 0
    result = results(tmp_path)
    piece = result["rates"]
    assert result["rehearsal"] and result.keys() == {"rehearsal", "rates"}
    assert piece["rehearsal"] and piece["gpu"] is None and piece["torch"] == torch.__version__ and piece["commit"]
    cells = piece["cells"]
    assert piece["status"] == "done" and all(cell["rehearsal"] for cell in cells.values())
    assert not any("error" in cell for cell in cells.values())
    expected = [f"{shape}, {name}" for name, variant in VARIANTS.items() for shape in variant.shapes]
    assert sorted(cells) == sorted(expected)
    for cell in cells.values():
        assert cell["steps_per_s"] > 0 and 0 < cell["mfu"] and cell["peak_mb"] > 50 and 0 < cell["mean_loss"] < 20
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) >= len(cells) + 1 and all(line.endswith("(rehearsal)") for line in lines)


def test_benchmark_gpu_piece_over_time_is_cut_and_resumed(tmp_path: Path, pieces: Any) -> None:
    pieces(sleeps=1.0, quick=3.0)
    assert call(tmp_path, "--minutes", "0.8") == 1
    result = results(tmp_path)
    assert result["sleeps"]["status"] == "cut" and list(result["sleeps"]["cells"]) == ["before"]
    assert result["quick"]["status"] == "done" and result["quick"]["cells"]["one"]["variant"] == "eager"

    written = (tmp_path / "pieces/quick.json").stat().st_mtime_ns
    (tmp_path / "hurry").touch()
    assert call(tmp_path) == 0  # goes on
    result = results(tmp_path)
    assert result["sleeps"]["status"] == "done" and result["sleeps"]["cells"]["slow"]["figure"] == 2
    assert (tmp_path / "pieces/quick.json").stat().st_mtime_ns == written


def test_benchmark_gpu_piece_ignoring_sigterm_is_killed(
    tmp_path: Path, pieces: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "GRACE", 0.5)
    pieces(deaf=1.0)
    assert call(tmp_path, "--minutes", "0.15") == 1
    assert read_piece(tmp_path, "deaf")["status"] == "cut" and read_piece(tmp_path, "deaf")["cells"] == {}


def test_benchmark_gpu_terminated_call_ends_piece(tmp_path: Path) -> None:
    """And what was measured until then is kept; the cell that was not is measured by the next call."""
    program = f"from {HERE} import *; gpu.PIECES = {{'sleeps': Piece(1.0, '', '{HERE}:sleeps')}}; sys.exit(main())"
    words = ["--rehearse", "--out", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", program, *words], cwd=gpu.ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline().startswith(b"sleeps: before: figure 1")
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    assert results(tmp_path)["sleeps"]["cells"]["before"]["figure"] == 1
    running = [each.info["cmdline"] for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"]]
    assert not any(str(tmp_path) in word for words in running for word in words)
    session = Session("sleeps", tmp_path, None, tmp_path, True, 0.0)
    assert list(session.cells) == ["before"]


def test_benchmark_gpu_errors_are_recorded_and_others_run(tmp_path: Path, pieces: Any) -> None:
    pieces(lacks=1.0, dies=1.0, raises=1.0)
    assert call(tmp_path, "--minutes", "3") == 1
    result = results(tmp_path)
    assert result["lacks"]["status"] == "error" and "something is not here" in result["lacks"]["error"]
    assert result["dies"]["status"] == "done"
    assert result["dies"]["cells"]["second"]["error"] == "the process ended with status -9"
    assert result["dies"]["cells"]["third"]["figure"] == 3
    wrong = result["raises"]["cells"]["wrong"]
    assert wrong["error"].startswith("ZeroDivisionError") and wrong["variant"] == "eager" and wrong["rehearsal"]
    assert result["raises"]["cells"]["right"]["figure"] == 1


def test_benchmark_gpu_invalid_arguments_are_rejected(tmp_path: Path, pieces: Any) -> None:
    with pytest.raises(SystemExit, match="no piece is called 'ratse'; there are rates"):
        main(["--out", str(tmp_path), "--pieces", "ratse"])
    with pytest.raises(SystemExit, match="--out names the folder"):
        main([])
    pieces(quick=1.0)
    assert main(["--out", str(tmp_path / "real"), "--minutes", "1"]) == 1
    assert "no GPU answers" in results(tmp_path / "real")["quick"]["error"]
    with pytest.raises(SystemExit, match="is no rehearsal: name another folder"):
        call(tmp_path / "real")


def test_benchmark_gpu_list_names_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(PIECES)
    assert sum(piece.minutes for piece in PIECES.values()) == pytest.approx(13)


def test_pack_study_round_trip_is_complete(tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    make_tiny_study(study)
    params = (study / "params.yaml").read_text()
    (study / "params.yaml").write_text(params.replace("from: ", "from: no-such-", 1))
    with pytest.raises(SystemExit, match="does not load here"):
        main(["--pack", str(tmp_path / "packed"), "--study", str(study)])
    (study / "params.yaml").write_text(params)
    pack_study(study, tmp_path / "study.tar.xz")
    (tmp_path / _gpu_session.COMMIT).write_text("0123abc\n")
    for given in (study, tmp_path / "study.tar.xz"):
        session = Session("p", tmp_path / given.name[:6], given, tmp_path, True, time.monotonic())
        session.rehearsal = False
        unpacked = study_folder(session)
        assert sorted(path.name for path in (unpacked / "data").iterdir()) == [
            "examples", "tasks", "tokens", "vocabulary"
        ]  # fmt: skip
        assert (unpacked / "params.yaml").read_text() == (study / "params.yaml").read_text()
    selected = unpacked / "checkpoints/phase2/19f0/kept/14"
    with pytest.raises(SystemExit, match="no model was pretrained"):
        trained_model(unpacked)
    selected.mkdir(parents=True)
    (selected / "config.json").write_text("{}")
    halfway = trained_model(unpacked)
    assert (unpacked / halfway / "config.json").exists()
    values = set_tasks(unpacked, halfway)
    assert values["finetune"]["model"] == "models/halfway" and values["finetune"]["seeds"] == [1, 2, 3]
    (unpacked / TRAINED).mkdir(parents=True)
    assert trained_model(unpacked) == TRAINED


def test_pack_model_splits_and_restores_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model, back = tmp_path / "model", tmp_path / "back"
    (model / "training_state").mkdir(parents=True)
    (model / "config.json").write_text("{}")
    save_file({"weight": torch.randn(9_000_000)}, model / "model.safetensors")
    assert pack_model(model, back)["files"] == 2
    parts = sorted(back.iterdir())
    assert [part.name for part in parts] == ["model.tar.00", "model.tar.01"]
    assert all(part.stat().st_size <= PIECE_BYTES for part in parts)
    (tmp_path / "model.tar").write_bytes(b"".join(part.read_bytes() for part in parts))
    with tarfile.open(tmp_path / "model.tar") as archive:
        archive.extractall(tmp_path / "unpacked")
    weights = load_file(tmp_path / "unpacked/model/model.safetensors")
    assert weights["weight"].dtype == torch.bfloat16 and (tmp_path / "unpacked/model/config.json").exists()


def test_planned_steps_fit_into_time() -> None:
    phase1 = {"wall_seconds": 30.0, "training_seconds": 10.0, "steady_steps": 200}
    assert planned_steps(phase1, 330.0) == round(0.93 * 300 * 20)
    assert planned_steps(phase1, 10.0) == 2  # never none


def test_benchmark_helpers() -> None:
    assert Variant._field_defaults["shapes"] == tuple(SHAPES)
    cells = {
        "a": {"shape": "mini", "variant": "eager", "tokens_per_s": 1.0},
        "b": {"shape": "mini", "variant": "compiled", "tokens_per_s": 2.0},
        "c": {"shape": "base", "variant": "eager", "tokens_per_s": 3.0},
        "d": {"shape": "mini", "variant": "compiled", "error": "no"},
    }
    assert fastest(cells, "mini") == "compiled" and fastest(cells, "large") == next(iter(VARIANTS))
    command = wheels_command(Path("wheels"))
    assert any(word.startswith("pydantic-core==") for word in command) and "3.12" in command
