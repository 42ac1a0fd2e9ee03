"""Retrieval losses and vectors equal sentence-transformers, and its metrics equal trec_eval."""

import argparse
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipeline_src.base.registry import member_names
from pipeline_src.finetune.heads import BertForTask, ranking_loss
from pipeline_src.finetune.task_data import make_batch
from pipeline_src.model.bert import load_architecture
from pipeline_src.model.hub import load_config, load_weights
from pipeline_src.study.model import ModelParams
from pipeline_src.study.task_spec import load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.queries import Query
from pipeline_src.tokenizer.load import load_tokenizer
from pipeline_src.tools import export
from tests.parity.peers import randomize, save

TASK = make_task(load_spec("qnli_retrieval"))
WORDS = "when where who was the first war city river born in of a an on built by name largest old".split()


UNKNOWN = ("bilstm", "word_vectors")  # to transformers
VOCABULARY = 15  # entries of the tokenizer of ``peers.save``
CORPUS = ("a b c", "j i h g f e d c b a " * 8, "d", "")
QUERIES = [Query("0", "a c", CORPUS, ((0,),)), Query("1", "bdf", CORPUS, ((1,),))]


def make_queries(count: int, negatives: int) -> list[Query]:
    """Return queries with one passage each."""
    rng = np.random.default_rng(0)
    corpus = tuple(" ".join(rng.choice(WORDS, rng.integers(3, 40))) for _ in range(count * (1 + negatives)))
    assert len(set(corpus)) == len(corpus)
    return [
        Query(str(index), " ".join(rng.choice(WORDS, 8)), corpus, (tuple(range(index, len(corpus), count)),))
        for index in range(count)
    ]


@pytest.mark.parametrize("negatives", [0, 1, 2])
def test_ranking_loss_equals_multiple_negatives_ranking_loss(minilm, negatives):
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    queries = make_queries(16, negatives)
    peer = SentenceTransformer(str(minilm), device="cpu").eval()
    columns = [[query.query for query in queries]]
    columns += [[query.corpus[query.pairs[0][number]] for query in queries] for number in range(1 + negatives)]
    expected = MultipleNegativesRankingLoss(peer)([peer.preprocess(texts) for texts in columns], None)

    model = BertForTask(load_config(minilm), "embedding", 0).eval()
    load_weights(model.bert, minilm)
    features = TASK.features(queries, load_tokenizer(minilm), 128)
    batch = make_batch(features, np.arange(len(queries)))
    loss = ranking_loss(model(batch.ids, batch.segments, batch.cu_seqlens, batch.lengths), batch)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5) and loss > 0.1
    loss.backward()
    expected.backward()
    weights = peer[0].model if hasattr(peer[0], "model") else peer[0].auto_model
    for name in ("embeddings.word_embeddings", "encoder.layer.2.attention.self.value"):
        ours, theirs = (part.get_submodule(name).weight.grad for part in (model.bert, weights))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_ranking_loss_passages_of_same_query_or_text_are_not_used_as_negatives():
    """Items 0 and 1 have the same query, and the last item has the same passage as the first."""
    vectors = torch.nn.functional.normalize(torch.randn(8, 5, generator=torch.Generator().manual_seed(0)))
    labels = np.array([[5, 0, 4], [5, 1, 2], [6, 2, 3], [7, 0, 1]])
    batch = SimpleNamespace(labels=torch.from_numpy(labels))
    candidates = [*labels[:, 1], *labels[:, 2]]  # 0, 1, 2, 0, 4, 2, 3, 1
    allowed = ([0, 2, 4, 5, 6], [1, 2, 4, 5, 6], [0, 1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 5, 6, 7])
    expected = []
    for number, index in enumerate(allowed):
        logits = 20 * vectors[labels[number, 0]] @ vectors[candidates].T
        expected.append(logits[index].logsumexp(0) - logits[number])
    loss = ranking_loss(vectors[labels.ravel()], batch)
    torch.testing.assert_close(loss, torch.stack(expected).mean())


@pytest.mark.parametrize("architecture", [name for name in member_names("models") if name not in UNKNOWN])
def test_embedding_vectors_equal_sentence_transformers_on_exported_folder(tmp_path, architecture):
    peer = pytest.importorskip("sentence_transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    params = ModelParams(architecture=architecture, max_position_embeddings=48, **sizes)
    config = load_architecture(architecture).config.from_params(params, VOCABULARY)
    model = randomize(BertForTask(config, "embedding", 0))
    (tmp_path / "model").mkdir()
    folder, output = save(tmp_path / "model", model, config, config.names.classes["encoder"]), tmp_path / "exported"
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    export.main(parser.parse_args([str(output), "--format", "sentence-transformers", "--model", str(folder)]))
    features = TASK.features(QUERIES, load_tokenizer(folder), config.longest_input).as_texts()
    batch = make_batch(features, np.arange(features.items))
    with torch.no_grad():
        vectors = model(batch.ids, batch.segments, batch.cu_seqlens).numpy()
    texts = [*QUERIES[0].corpus, *(query.query for query in QUERIES)]
    expected = peer.SentenceTransformer(str(output), device="cpu").encode(texts)
    assert np.abs(vectors - expected).max() < 1e-5 and np.abs(vectors[0] - vectors[1]).max() > 1e-3


@pytest.mark.parametrize("passages", [2, 9, 150])
def test_ranking_metrics_equal_trec_eval_of_random_rankings(passages):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="mteb is not installed")
    rng = np.random.default_rng(passages)
    corpus = tuple(map(str, range(passages)))
    names = {"ndcg_at_10": "ndcg_cut_10", "recall_at_100": "recall_100"}
    for _ in range(20):
        counts = rng.integers(1, min(passages, 14), 30)
        relevant = [rng.choice(passages, count, replace=False).tolist() for count in counts]
        rankings = [rng.permutation(passages)[:100].tolist() for _ in relevant]
        queries = [
            Query(str(index), "q", corpus, tuple((passage,) for passage in passages))
            for index, passages in enumerate(relevant)
        ]
        rows = [{"id": str(index), "prediction": ranking} for index, ranking in enumerate(rankings)]
        scores = TASK.score("qnli_retrieval", queries, rows)
        judged = {str(index): {str(passage): 1 for passage in passages} for index, passages in enumerate(relevant)}
        run = {row["id"]: {str(passage): -place for place, passage in enumerate(row["prediction"])} for row in rows}
        peer = pytrec_eval.RelevanceEvaluator(judged, set(names.values())).evaluate(run)
        for ours, theirs in names.items():
            mean = np.mean([result[theirs] for result in peer.values()])
            assert scores[ours] / 100 == pytest.approx(mean, abs=1e-12), ours
