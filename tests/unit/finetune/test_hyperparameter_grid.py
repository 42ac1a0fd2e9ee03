"""Runs of a hyperparameter grid: what is saved, what is repeated after damage, and sharing between users."""

import os
from pathlib import Path

import pytest

from pipeline_src.base.files import read_json
from pipeline_src.finetune.hyperparameter_grid import MAX_BASELINES, BaselineGrid, Grid, GridPoint
from tests.users import FIRST, SECOND, as_user, needs_root, share

POINTS = [GridPoint(rate, 1, 32) for rate in (0.1, 0.2, 0.3)]


def keep(grid: Grid, point: GridPoint, score: float, model: bool = True) -> None:
    def save(folder: Path) -> None:
        (folder / "weights").write_text(str(score), encoding="utf-8")

    rows = {"cola": [{"prediction": score}]}
    grid.add(point, 0.5, {"mcc": score}, "mcc", rows, save if model else None, epoch=1)


def test_grid_reopened_has_all_runs_and_files_of_best_run(tmp_path):
    grid = Grid(tmp_path / "grid", "pretrained")
    for point, score in zip(POINTS, (1.0, 3.0, 2.0), strict=True):
        keep(grid, point, score)
    again = Grid(tmp_path / "grid", "pretrained")
    assert (
        again.runs == grid.runs and all(again.has(point) for point in POINTS) and not again.has(GridPoint(0.1, 2, 32))
    )
    assert again.best()["learning_rate"] == 0.2
    assert (again.best_folder / "model/weights").read_text() == "3.0"
    assert sorted(path.name for path in (tmp_path / "grid").iterdir()) == ["run-1", "runs.json"]


def test_grid_equal_scores_keep_first_run(tmp_path):
    grid = Grid(tmp_path / "grid", "random")
    for point in POINTS:
        keep(grid, point, 1.0, model=False)
    assert grid.best()["learning_rate"] == 0.1 and not (grid.best_folder / "model").exists()


def test_grid_killed_before_list_is_written_repeats_one_run(tmp_path, monkeypatch):
    grid = Grid(tmp_path / "grid", "pretrained")
    keep(grid, POINTS[0], 1.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("pipeline_src.finetune.hyperparameter_grid.write_json", stop)
        keep(grid, POINTS[1], 2.0)
    again = Grid(tmp_path / "grid", "pretrained")
    assert again.has(POINTS[0]) and not again.has(POINTS[1])
    keep(again, POINTS[1], 2.0)
    assert (Grid(tmp_path / "grid", "pretrained").best_folder / "model/weights").read_text() == "2.0"


def stop(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", ["predictions", "lost", "empty", "number"])
def test_grid_damaged_file_resets_all_runs(tmp_path, caplog, damage):
    keep(Grid(tmp_path / "grid", "random"), POINTS[0], 1.0)
    in_list = damage in ("empty", "number")
    file = tmp_path / "grid" / ("runs.json" if in_list else "run-0/predictions/cola.jsonl")
    if damage == "lost":
        file.unlink()
    elif damage == "number":
        file.write_text(file.read_text(encoding="utf-8").replace("0.5", "0.25"), encoding="utf-8")
    else:
        file.write_text('{"runs": [], "sums": {}}' if damage == "empty" else "[", encoding="utf-8")
    again = Grid(tmp_path / "grid", "random")
    assert not again.runs and not (tmp_path / "grid").exists()
    assert "trained again" in caplog.text
    keep(again, POINTS[0], 1.0)
    assert Grid(tmp_path / "grid", "random").has(POINTS[0])


def test_baseline_grid_finish_removes_oldest(tmp_path):
    folders = [tmp_path / str(number) for number in range(MAX_BASELINES + 2)]
    for age, folder in enumerate(folders):
        keep(BaselineGrid(folder, "random"), POINTS[0], 1.0, model=False)
        os.utime(folder, (age, age))
    BaselineGrid(folders[1], "random").finish()  # used again, so it is the newest
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in folders if path not in (folders[0], folders[2])
    )
    grid = Grid(tmp_path / "of-an-encoder", "pretrained")
    keep(grid, POINTS[0], 1.0)
    grid.finish()
    assert not grid.folder.exists() and read_json(folders[1] / "runs.json")["runs"]


@needs_root
@pytest.mark.parametrize("closed", [None, "grid", "grid/run-0", "grid/runs.json"])
def test_grid_inaccessible_folder_of_another_user_is_bypassed(tmp_path, monkeypatch, closed):
    monkeypatch.chdir(tmp_path)
    share(tmp_path)

    def first() -> None:
        keep(BaselineGrid(Path("grid"), "random"), POINTS[0], 1.0)
        if closed:
            Path(closed).chmod(0o700)

    def second() -> None:
        grid = BaselineGrid(Path("grid"), "random")
        assert grid.has(POINTS[0]) is (closed is None)
        keep(grid, POINTS[1], 2.0)
        grid.finish()
        again = BaselineGrid(Path("grid"), "random")
        assert again.has(POINTS[1]) and again.has(POINTS[0]) is (closed is None)

    as_user(FIRST, first)
    as_user(SECOND, second)
    assert (tmp_path / f"grid-{SECOND}").exists() is (closed is not None)


@needs_root
def test_baseline_grid_finish_ignores_missing_permission(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    share(tmp_path)
    keep(BaselineGrid(Path("grid"), "random"), POINTS[0], 1.0)
    Path("grid").chmod(0o755)

    def finish() -> None:
        grid = Grid.__new__(BaselineGrid)
        grid.folder = Path("grid")
        grid.finish()

    as_user(SECOND, finish)
