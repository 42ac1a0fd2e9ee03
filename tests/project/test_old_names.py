"""Names that the field does not know, replaced in the second edition, stay away."""

import ast
from pathlib import Path

import pytest
import yaml

from tests.versions import versions

FILES = """
    models/undrawn models/compiling models/layer_norm models/dropout models/heads models/architecture
    models/packed_layout models/names models/tensors models/card models/card_kinds models/disentangled models/rotary
    models/lstm models/narrow_embeddings models/word_restorer models/discriminator models/layer_imitation
    models/distillation objectives/masked objectives/left_to_right objectives/both_directions objectives/replaced
    objectives/distilled objectives/layers training/cutting training/joining training/presence training/network
    training/datasheet training/transfer training/compute training/compute_tracker training/state training/identity
    pretraining/identity finetuning/identity pretraining/prepare pretraining/phase pretraining/initial_state
    pretraining/finish pretraining/save pretraining/monitor pretraining/compile_choice pretraining/loading
    pretraining/mask_probes finetuning/frozen_layers finetuning/files finetuning/recipes tasks/sums tasks/handlers
    tasks/windows tasks/document_windows interpretation/chosen interpretation/material interpretation/skipped
    interpretation/studied_model interpretation/online_code corpus/books/shelf corpus/books/matter
    corpus/books/misread corpus/wikipedia/lead_ins corpus/wikipedia/placeholders common/shapes common/members
    common/closure corpus/overlap architectures params sources task_sources wikipedia books statistics word_vectors
    tokenizer_training
""".split()
DEFINED = """
    RowsInUse Asked PackedLayout GivesWeights StartsOtherwise Names lost_elsewhere understood initial_cut head_scale
    judged_with_first look_beside one_product adjust_initial_weights Term TokenPrediction learn_from make_teacher
    draw_weights clipped_together row_ends cut_in_order cut_evenly give_back is_spread largest patient choose_tokens
    fate Candidates Point Recipe Handler Sums Units NullCut TaughtAnswers Mixture Block Study Presence Chip Cut Damaged
""".split()
ALLOWED = {"Block": "models", "Study": "config", "Handler": "download"}  # there, the word is the field's own
IN_MODELS = {"through", "states", "weights", "loaded", "saved"}  # elsewhere these are common words
KEYS = """
    vocabulary.entries vocabulary.longest_word vocabulary.min_count model.hidden model.layers model.heads
    model.feed_forward model.positions model.embedding model.dropout model.attention_dropout model.activation
    model.positions_start pretrain.batch pretrain.warmup pretrain.clip pretrain.epsilon pretrain.evaluate_every
    pretrain.keep_steps pretrain.curve_points pretrain.optimiser pretrain.masking.mask pretrain.masking.random
    pretrain.masking.keep pretrain.masking.spans pretrain.masking.specials objectives.replaced objectives.distilled
    objectives.masked objectives.left_to_right objectives.both_directions objectives.layers finetune.restarts
    finetune.warmup_share finetune.default finetune.tasks finetune.defaults.batches finetune.defaults.frozen
    finetune.defaults.augmented examples.duplicates examples.pairs examples.lengths examples.max_seq_length.short
    pretrain.steps.short pretrain.recompute pretrain.max_tokens finetune.recompute finetune.max_tokens
""".split()
TOOLS = ("look_into", "complete")
STAGES = ("pretrain_short", "pretrain_long")


@pytest.fixture(scope="module")
def source(root: Path) -> Path:
    return root / "pipeline_src"


def test_no_file_has_an_old_name(source: Path) -> None:
    assert not [name for name in FILES if (source / f"{name}.py").exists() or (source / name).is_dir()]
    assert not [name for name in TOOLS if (source / "tools" / f"{name}.py").exists()]


def test_no_class_or_function_has_an_old_name(source: Path) -> None:
    found = []
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                old = node.name in DEFINED and ALLOWED.get(node.name) != room
                if old or (room == "models" and node.name in IN_MODELS):
                    found.append(f"{path.relative_to(source)}: {node.name}")
    assert not found


@pytest.mark.parametrize("file", ["workflow/presets/sample.yaml", "machine.yaml"])
def test_no_key_has_an_old_name(file: str) -> None:
    values = yaml.safe_load(versions(file)[-1])

    def holds(key: str) -> bool:
        inner = values
        for name in key.split("."):
            if not isinstance(inner, dict) or name not in inner:
                return False
            inner = inner[name]
        return True

    assert not [key for key in KEYS if holds(key)]


def test_no_stage_has_an_old_name(root: Path) -> None:
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert not set(STAGES) & set(stages)
