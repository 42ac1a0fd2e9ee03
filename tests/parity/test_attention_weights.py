"""Attention weights beside those that transformers gives."""

import torch
from transformers import BertModel

from pipeline_src.interpretation.attention_maps import attention_maps
from pipeline_src.models.hub import save_tensors
from tests.unit.interpretation.conftest import make_model

TEXTS = [[5, 6, 7], [8, 9, 10, 11, 12], [13]]


def test_weights_are_those_of_transformers(tmp_path):
    model = make_model()
    tensors = {f"bert.{name}": value for name, value in model.encoder.state_dict().items()}
    save_tensors(tmp_path, tensors, model.config, "BertModel")
    peer = BertModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    for number, maps in attention_maps(model, TEXTS):
        ids, _, _ = model.pack([TEXTS[number]])
        with torch.no_grad():
            theirs = torch.cat(peer(ids[None], output_attentions=True).attentions)
        torch.testing.assert_close(maps, theirs, rtol=0, atol=1e-5)
        torch.testing.assert_close(maps.sum(-1), torch.ones(maps.shape[:-1]))
