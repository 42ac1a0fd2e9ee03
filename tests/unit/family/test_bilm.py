"""ELMo's language models: torch's own LSTMs on padded sequences, and losses that nothing leaks into."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

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
    """torch's own packing of padded sequences."""
    padded = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    packed = pack_padded_sequence(padded, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    read = pad_packed_sequence(lstm(packed)[0], batch_first=True)[0]
    return [rows[:length] for rows, length in zip(read, LENGTHS, strict=True)]


def test_bilm_hidden_states_equal_torch_lstm_on_padded_sequences():
    model = LanguageModels(CONFIG)
    bert, tokens = model.bert, ids()
    onward = list(bert.embeddings.word_embeddings(tokens).split(LENGTHS))
    back = [sequence.flip(0) for sequence in onward]
    for number, layer in enumerate(bert.encoder.layer):
        read, read_back = run_torch_lstm(layer.onward, onward), run_torch_lstm(layer.back, back)
        onward = [new + old * number for new, old in zip(read, onward, strict=True)]  # the first adds nothing
        back = [new + old * number for new, old in zip(read_back, back, strict=True)]
    expected = torch.cat([torch.cat([a, b.flip(0)], 1) for a, b in zip(onward, back, strict=True)])
    halves = model.directions(tokens, torch.zeros_like(tokens), STARTS, 7)
    torch.testing.assert_close(torch.cat(list(halves), 1), expected, atol=1e-5, rtol=1e-5)
    expected.square().sum().backward()
    target = {name: parameter.grad.clone() for name, parameter in bert.named_parameters() if parameter.grad is not None}
    model.zero_grad()
    torch.cat(list(model.directions(tokens, torch.zeros_like(tokens), STARTS, 7)), 1).square().sum().backward()
    assert len(target) == 1 + 2 * 2 * 5
    for name, parameter in bert.named_parameters():
        if name in target:
            torch.testing.assert_close(parameter.grad, target[name], atol=1e-4, rtol=1e-4)


def test_bilm_directions_do_not_see_predicted_token():
    model, tokens = LanguageModels(CONFIG), ids()
    onward, back = model.directions(tokens, torch.zeros_like(tokens), STARTS, 7)
    changed = tokens.clone()
    changed[7] = (changed[7] + 1) % 30  # the fourth of the second sequence, 4 .. 10
    now, now_back = model.directions(changed, torch.zeros_like(tokens), STARTS, 7)
    assert [i for i in range(20) if not torch.equal(onward[i], now[i])] == [7, 8, 9, 10]
    assert [i for i in range(20) if not torch.equal(back[i], now_back[i])] == [4, 5, 6, 7]


def test_bilm_loss_is_mean_of_both_directions():
    objective, tokens = OBJECTIVE(CONFIG, "none"), ids()
    objective.init_weights(torch.Generator().manual_seed(2))
    last = set((STARTS[1:] - 1).tolist())
    predicted = torch.tensor([position for position in range(20) if position not in last])
    batch = SimpleNamespace(
        ids=tokens, segments=torch.zeros_like(tokens), cu_seqlens=STARTS, max_seqlen=7, predicted=predicted,
        labels=tokens[predicted + 1], workload=Workload(predictions=16),
    )  # fmt: skip
    terms, counts = objective(batch), objective.loss_counts(batch.workload)
    onward, back = objective.model.directions(tokens, batch.segments, STARTS, 7)
    decoder = objective.model.cls["predictions"]["decoder"]
    expected = sum(
        F.cross_entropy(decoder(onward[position]), tokens[position + 1])
        + F.cross_entropy(decoder(back[position + 1]), tokens[position])
        for position in predicted.tolist()
    )
    loss = sum(objective.weights[name] * term.loss / counts[name] for name, term in terms.items())
    torch.testing.assert_close(loss, 0.5 * expected / 16)


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
    with pytest.raises(PipelineError, match="bilm goes without sentence pairs"):
        check_study(study)
