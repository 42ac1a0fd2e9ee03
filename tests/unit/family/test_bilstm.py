"""BiLSTM language models equal torch's LSTM on padded sequences, and do not see the predicted token."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml

from pipeline_src.base.errors import PipelineError
from pipeline_src.family.bilstm.encoder import BiLSTMConfig
from pipeline_src.family.bilstm.objective import OBJECTIVE, LanguageModels
from pipeline_src.finetune.heads import BertForTask
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.flops import Workload
from pipeline_src.model.lstm import run_lstm, run_padded_lstm
from pipeline_src.study.preset import preset_text
from pipeline_src.study.study import check_study

CONFIG = BiLSTMConfig(30, 12, 2, 1, 10, hidden_dropout_prob=0.0)
LENGTHS = [4, 7, 2, 7]
STARTS = torch.tensor([0, 4, 11, 13, 20])


def ids() -> torch.Tensor:
    return torch.randint(0, 30, (20,), generator=torch.Generator().manual_seed(1))


def run_torch_lstm(lstm: torch.nn.LSTM, sequences: list[torch.Tensor]) -> list[torch.Tensor]:
    return [lstm(sequence[:, None])[0][:, 0] for sequence in sequences]


def test_bilm_hidden_states_equal_torch_lstm_on_each_sequence():
    model = LanguageModels(CONFIG)
    tokens = ids()
    onward = list(model.bert.embeddings.word_embeddings(tokens).split(LENGTHS))
    back = [sequence.flip(0) for sequence in onward]
    for number, layer in enumerate(model.bert.encoder.layer):
        read = run_torch_lstm(layer.onward, onward)
        read_back = run_torch_lstm(layer.back, back)
        # The first layer has no residual connection.
        onward = [new + old * number for new, old in zip(read, onward, strict=True)]
        back = [new + old * number for new, old in zip(read_back, back, strict=True)]
    back = [sequence.flip(0) for sequence in back]
    halves = model.directions(tokens, torch.zeros_like(tokens), STARTS, 7)
    for half, expected in zip(halves, (onward, back), strict=True):
        torch.testing.assert_close(half, torch.cat(expected), atol=1e-5, rtol=1e-5)


def test_bilm_directions_do_not_see_predicted_token():
    model = LanguageModels(CONFIG)
    changed = ids()
    # The fourth token of the second sequence, 4 .. 10.
    changed[7] = (changed[7] + 1) % 30
    before, after = (model.directions(tokens, tokens * 0, STARTS, 7) for tokens in (ids(), changed))
    for old, new, seen in zip(before, after, ([7, 8, 9, 10], [4, 5, 6, 7]), strict=True):
        assert (old != new).any(1).nonzero().flatten().tolist() == seen


def test_bilm_loss_is_mean_of_both_directions():
    objective = OBJECTIVE(CONFIG, "none")
    objective.init_weights(torch.Generator().manual_seed(2))
    tokens = ids()
    segments = torch.zeros_like(tokens)
    predicted = np.setdiff1d(np.arange(20), STARTS[1:] - 1)
    at = torch.from_numpy(predicted)
    batch = SimpleNamespace(
        ids=tokens, segments=segments, cu_seqlens=STARTS, max_seqlen=7, predicted=at, labels=tokens[at + 1]
    )
    terms = objective(batch)
    counts = objective.loss_counts(Workload(predictions=16))
    loss = sum(objective.weights[name] * term.loss / counts[name] for name, term in terms.items())
    onward, back = objective.model.directions(tokens, segments, STARTS, 7)
    decoder = objective.model.cls["predictions"]["decoder"]
    expected = F.cross_entropy(decoder(onward[at]), tokens[at + 1]) + F.cross_entropy(decoder(back[at + 1]), tokens[at])
    torch.testing.assert_close(loss, 0.5 * expected)


def test_bert_for_task_bilstm_encoder_layers_are_mixed_and_frozen():
    task = BertForTask(CONFIG, "token", 3, frozen="weighted_with_embeddings")
    tokens = ids()
    task(tokens, torch.zeros_like(tokens), STARTS).sum().backward()
    assert task.frozen.weights.shape == (3,) and task.frozen.weights.grad is not None
    assert all(parameter.grad is None for parameter in task.bert.parameters())


def test_run_padded_lstm_equals_run_lstm():
    lstm = torch.nn.LSTM(4, 6, proj_size=3)
    layout = PackedBatch.of(STARTS, 20)
    hidden = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    packed = run_lstm(lstm, hidden, layout, np.array(LENGTHS))
    torch.testing.assert_close(run_padded_lstm(lstm, hidden, layout), packed)


def test_check_study_bilm_with_sentence_pairs_is_rejected(root):
    study = yaml.safe_load(preset_text("test", root / "workflow/presets"))
    study["model"]["architecture"], study["pretrain"]["objective"] = "bilstm", "bilm"
    study["examples"]["pair_objective"] = "nsp"
    with pytest.raises(PipelineError, match="bilm does not support sentence pairs"):
        check_study(study)
