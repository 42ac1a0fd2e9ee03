"""Model cards state what is known, and say what is unknown."""

import pytest
import yaml

from pipeline_src.model.bert import BertConfig
from pipeline_src.model.model_card import (
    Source,
    finetuned_card,
    imported_card,
    pretrained_card,
    read_mix,
    read_sources,
    sentence_card,
)
from pipeline_src.pretrain.objective import load_objective

CONFIG = BertConfig(8000, 128, 2, 2, 512)
WIKIPEDIA = Source("enwiki", "English Wikipedia", "CC BY-SA 4.0 and GFDL", "Wikimedia | https://x.org", "en")
BOOKS = Source("own-books", "Books of your own", "yours to state", "yours to state")


def parse(text: str) -> tuple[dict, str]:
    _, front, body = text.split("---\n", 2)
    return yaml.safe_load(front), body


def pretrained(**changed):
    values = dict(
        config=CONFIG,
        parameters=1_505_474,
        learns="masked words and next sentences",
        huggingface_class="BertForPreTraining",
        sources=[WIKIPEDIA, BOOKS],
        training={"seed": 7, "steps": 2000, "masking": {"mask": 0.8}, "learning_rate": 1e-4},
        figures={"training text": {"MLM loss": 6.12345}, "validation text": {"MLM loss": 6.60812, "NSP accuracy": 0.8}},
        cost={"tokens": 4_096_000, "FLOP": 1.234567e15},
        mix=read_mix({"parts": {"train": {"enwiki": {"tokens": 3}, "books": {"tokens": 1}}}}),
    )
    return pretrained_card(**values | changed)


def test_pretrained_card_front_matter_has_licence_task_and_datasets():
    front, _ = parse(pretrained())
    assert front == {
        "license": "other",
        "license_name": "not-stated",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "pretraining"],
        "datasets": ["enwiki", "own-books"],
    }
    assert parse(pretrained(sources=[WIKIPEDIA]))[0]["language"] == ["en"]  # that of all text, or none


def test_pretrained_card_body_has_data_training_figures_and_cost():
    _, body = parse(pretrained())
    assert "# BERT, 2 layers, 128 wide" in body and "1,505,474 parameters" in body
    assert "| English Wikipedia | en | CC BY-SA 4.0 and GFDL | Wikimedia \\| https://x.org |" in body
    assert "| Books of your own | not stated | yours to state |" in body
    assert "\n\nShares of the training tokens: enwiki 75.0 %, books 25.0 %.\n" in body
    assert "| seed | 7 |" in body and "| masking.mask | 0.8 |" in body and "| learning_rate | 0.0001 |" in body
    assert "| training text | MLM loss | 6.123 |" in body and "| validation text | NSP accuracy | 0.8 |" in body
    assert "| tokens | 4,096,000 |" in body and "| FLOP | 1.235e+15 |" in body
    assert "BertForPreTraining.from_pretrained" in body and "512 tokens" in body
    assert pretrained() == pretrained()


@pytest.mark.parametrize("objective", ["mlm", "clm"])
@pytest.mark.parametrize("pairs", ["nsp", "sop", "none"])
def test_pretrained_card_names_each_objective(objective, pairs):
    made = load_objective(objective)(CONFIG, pairs)
    front, body = parse(pretrained(learns=made.learns, huggingface_class=made.saved_models()[""].huggingface_class))
    named = pairs == "nsp" or (pairs == "none" and objective == "mlm")
    assert ("next sentences" in body) is named
    assert ("the order of sentences" in body) is (pairs == "sop")
    assert ("from those before it" in body) is (objective == "clm")
    assert front["pipeline_tag"] == {"mlm": "fill-mask", "clm": "text-generation"}[objective]


def test_card_unknown_data_is_called_not_stated():
    front, body = parse(pretrained(sources=None))
    assert front["license"] == "other" and "datasets" not in front and "language" not in front
    assert "## Data\n\nUnknown.\n" in body and "None is stated" in body
    front, body = parse(imported_card(CONFIG, 5, "BertModel"))
    assert front["license"] == "other" and "## Data\n\nUnknown.\n" in body
    assert "## Training" not in body and "## Cost" not in body and "## Measured" not in body


def test_finetuned_card_has_task_data_hyperparameters_and_scores():
    scores = [("MNLI-m", "dev_matched.tsv", "accuracy", 84.412), ("MNLI-mm", "dev_mismatched.tsv", "accuracy", 83.9)]
    source = Source("mnli", "Multi-Genre NLI", "OANC", "Williams et al. 2018")
    card = finetuned_card(CONFIG, "MNLI", "BertForSequenceClassification", source, {"epochs": 3}, scores)
    front, body = parse(card)
    assert front["pipeline_tag"] == "text-classification" and front["datasets"] == ["mnli"]
    (index,) = front["model-index"]
    assert [(row["dataset"]["name"], row["metrics"][0]["value"]) for row in index["results"]] == [
        ("MNLI-m", 84.41),
        ("MNLI-mm", 83.9),
    ]
    assert "| Multi-Genre NLI | not stated | OANC | Williams et al. 2018 |" in body and "| epochs | 3 |" in body
    assert "| MNLI-mm, dev_mismatched.tsv | accuracy | 83.9 |" in body
    assert "\npython -m pipeline_src predict MNLI FILE --model FOLDER\n" in body
    assert "pipeline_src predict" not in pretrained()
    huggingface_class = "BertForSequenceClassification"
    with_head = finetuned_card(CONFIG, "MNLI", huggingface_class, source, {"epochs": 3}, scores, "A head.")
    assert with_head == card.replace("\n\n## Licence", "\n\nA head.\n\n## Licence") != card


def test_read_sources_ignores_other_keys():
    row = {"name": "enwiki", "title": "English Wikipedia", "licence": "CC BY-SA", "citation": "W", "language": "en"}
    assert read_sources({"sources": [row, {**row, "name": "x", "part": "1"}]}) == (
        Source("enwiki", "English Wikipedia", "CC BY-SA", "W", "en"),
        Source("x", "English Wikipedia", "CC BY-SA", "W", "en"),
    )
    assert read_sources({}) is None and read_sources({"sources": []}) is None


def test_read_mix_shares_are_token_proportions_or_set_by_study():
    manifest = {"parts": {"train": {"wiki": {"tokens": 9}, "books": {"tokens": 1}}}}
    assert read_mix(manifest) == {"wiki": 0.9, "books": 0.1}
    assert read_mix(manifest, {"wiki": {"share": 0.5}, "books": {"share": 0.5}}) == {"wiki": 0.5, "books": 0.5}


def test_sentence_card_keeps_the_body_and_changes_the_tags():
    front, body = parse(sentence_card(pretrained(), "cls", True))
    assert front["library_name"] == "sentence-transformers" and front["pipeline_tag"] == "sentence-similarity"
    assert front["tags"] == ["bert", "pretraining", "sentence-transformers"] and front["datasets"] == [
        "enwiki",
        "own-books",
    ]
    assert body.startswith(parse(pretrained())[1].rstrip())
    assert "the first of its tokens' vectors, divided by its length" in body


def test_card_text_with_markup_stays_in_its_table_cell():
    source = Source("x", "A <b>title</b>\n| {{ 7 * 7 }}", "l", "c")
    assert "| A &lt;b>title&lt;/b> \\| {{ 7 * 7 }} | not stated | l | c |" in pretrained(sources=[source])


def test_card_links_and_images_in_data_are_escaped():
    hostile = "![x](http://a/b.png) [y](javascript:alert(1))"
    source = Source(hostile, hostile, hostile, hostile, "en")
    score = (hostile, hostile, hostile, 1.0)
    cards = [
        pretrained(sources=[source], mix={hostile: 1.0}, figures={hostile: {hostile: 1.0}}),
        finetuned_card(CONFIG, hostile, "BertModel", source, {hostile: hostile}, [score]),
    ]
    for card in cards:
        _, body = parse(card)
        assert "[x](" not in body and "[y](" not in body
        assert body.count("javascript:") > 4
