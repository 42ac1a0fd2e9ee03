"""Retrieval through the whole stage, and in mteb."""

import argparse
from pathlib import Path

import pytest

from pipeline_src.base.files import read_json
from pipeline_src.evaluate.evaluate import run as evaluate
from pipeline_src.finetune.task_data import TaskData
from pipeline_src.study.machine import DEFAULT_MACHINE, TrainingMachine
from pipeline_src.study.task_spec import TaskSpec, load_spec
from pipeline_src.tasks.kinds import make_task
from pipeline_src.tasks.made.synthetic import write_task
from tests.unit.finetune.conftest import fine_tune, make_params, predictions, recorded_runs

TASK, MAX_LENGTH = "qnli_retrieval", 16  # tokens, fewer than some texts have


@pytest.fixture(scope="module")
def inputs(make_study) -> Path:
    """A random encoder of two layers and pairs that share words."""
    return make_study((), layers=2, change=lambda root: write_task("qnli", root / "data/tasks" / TASK, seed=1))


RECIPE = {"learning_rates": 2e-3, "batch_sizes": 32, "max_length": MAX_LENGTH}


def test_finetune_retrieval_scores_equal_mteb(study):
    recipe = {**RECIPE, "epochs": 2, "random_baseline": True}
    folder = fine_tune(TASK, **recipe)
    config = read_json(folder / "config.json")
    assert config["architectures"] == ["BertModel"] and config["max_seq_length"] == MAX_LENGTH
    spec = load_spec(TASK)
    task, queries = make_task(spec), make_task(spec).read(f"data/tasks/{TASK}/dev.tsv", TASK)
    scores = task.score(TASK, queries, predictions(TASK))
    (best, _) = recorded_runs(TASK)
    assert scores == pytest.approx(best["dev"])

    evaluate(task_source="synthetic", tasks=(TASK,), finetune=make_params(**recipe))
    rows = {row["metric"]: row for row in read_json("results/scores.json")["rows"]}
    main = rows["ndcg_at_10"]
    assert main["mean"] == pytest.approx(scores["ndcg_at_10"]) and main["main"] and len(rows) == 3
    assert min(main["mean"], main["random_weights"]) > 2 * main["majority_baseline"]
    assert main["baselines"]["bag_of_words"]["score"] > main["majority_baseline"]

    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    def rows(texts: dict[str, str]) -> Dataset:
        return Dataset.from_list([{"id": name, "text": text} for name, text in texts.items()])

    class Pairs(mteb.abstasks.AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(
            name="Pairs", description="pairs", type="Retrieval", modalities=["text"], category="t2t",
            dataset={"path": "none", "revision": "1"}, eval_splits=["dev"], eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )  # fmt: skip

        def load_data(self, **_):
            corpus = {str(number): text for number, text in enumerate(queries[0].corpus)}
            relevant = {query.id: dict.fromkeys(map(str, query.relevant), 1) for query in queries}
            dev = {"queries": rows({query.id: query.query for query in queries}), "corpus": rows(corpus)}
            self.dataset = {"default": {"dev": {**dev, "relevant_docs": relevant, "top_ranked": None}}}
            self.data_loaded = True

    parser = argparse.ArgumentParser()
    export = pytest.importorskip("pipeline_src.tools.export")
    export.add_arguments(parser)
    options = ["exported", "--format", "sentence-transformers", "--model", str(folder)]
    export.main(parser.parse_args(options))
    model = SentenceTransformer("exported", device="cpu")
    (peer,) = mteb.evaluate(model, [Pairs()], cache=None, show_progress_bar=False)[0].scores["dev"]
    for metric in ("ndcg_at_10", "recall_at_100", "mrr_at_10"):
        assert scores[metric] / 100 == pytest.approx(peer[metric], abs=1e-5), metric  # rounded to five digits


def test_finetune_retrieval_batch_is_not_split_into_microbatches(study):
    """Each passage is a negative of every other query of the batch."""
    losses = []
    for tokens in (64, 16_384):
        machine = DEFAULT_MACHINE.model_copy(update={"finetune": TrainingMachine(microbatch_tokens=tokens)})
        fine_tune(TASK, machine=machine, **RECIPE)
        losses.append(recorded_runs(TASK)[0]["train_loss"])
    assert losses[0] == losses[1]


def test_eval_set_features_depend_on_corpus_and_query_files(study):
    folder = Path("data/tasks/mine")
    folder.mkdir(parents=True)
    (folder / "dev.tsv").write_text("q\tp\nq1\td2\n")
    (folder / "queries.tsv").write_text("_id\ttext\nq1\twhere\n")
    score = {
        "title": "x",
        "file": "dev.tsv",
        "corpus": "corpus.tsv",
        "queries": "queries.tsv",
        "metrics": ["mrr_at_10"],
    }
    task = {"name": "mine", "kind": "retrieval", "columns": {"texts": ["q", "p"]}, "train": "dev.tsv"}
    spec = TaskSpec.model_validate({**task, "scores": {"mine": score}})
    corpora, checksums = [], []
    for text in ("here", "there"):
        (folder / "corpus.tsv").write_text(f"_id\ttext\nd1\tnowhere\nd2\t{text}\n")
        data = TaskData(spec, Path("models/pretrained/phase2"), 16)
        features = data.eval_set("mine").features
        corpora.append(data.tokenizer.decode(features.ids[slice(*features.cu_seqlens[1:3])]))
        checksums.append(data.checksums())
    assert corpora == ["here", "there"]
    assert [name for name in checksums[0] if checksums[0][name] != checksums[1][name]] == ["corpus.tsv"]
