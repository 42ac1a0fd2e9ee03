"""Small task sets, and an encoder with a vocabulary of their words."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from pipeline_src.model.bert import BertConfig, BertForPretraining, initialise
from pipeline_src.model.hub import save_model
from pipeline_src.tasks.made.synthetic import write_task
from pipeline_src.tokenizer.train_tokenizer import count_words
from pipeline_src.tokenizer.wordpiece import save_tokenizer
from pipeline_src.tokenizer.wordpiece_trainer import learn_vocabulary


@pytest.fixture(scope="session")
def make_study(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder with synthetic task sets and a random encoder of ``layers`` layers, 64 wide."""

    def make(tasks: Sequence[str], layers: int, change: Callable[[Path], None] = lambda root: None) -> Path:
        root = tmp_path_factory.mktemp("study")
        for task in tasks:
            write_task(task, root / "data/tasks" / task, seed=1)
        change(root)
        text = [path.read_text(encoding="utf-8") for path in sorted((root / "data/tasks").rglob("*")) if path.is_file()]
        folder = root / "models/pretrained/phase2"
        (folder / "v").mkdir(parents=True)
        pieces = learn_vocabulary(count_words(text, lowercase=True), 600, 80, 2)
        save_tokenizer(folder / "v", pieces, lowercase=True)
        config = BertConfig(len(pieces), 64, layers, layers, 128, 64)
        model = BertForPretraining(config)
        initialise(model, torch.Generator().manual_seed(0))
        save_model(folder, model, config, "BertForPreTraining", folder / "v")
        return root

    return make


@pytest.fixture
def study(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the module's ``inputs`` as working directory."""
    folder = shutil.copytree(inputs, tmp_path / "study")
    monkeypatch.chdir(folder)
    return folder
