"""The published members of the family as presets: valid studies, with the published numbers of parameters."""

import pytest
import yaml

from pipeline_src.models.architecture import load_architecture
from pipeline_src.params.study import check_study
from pipeline_src.tools.preset_family import BASIS
from pipeline_src.tools.preset_published import published, render_published

# Entries of the original's vocabulary, and parameters of transformers' encoder class.
COUNTS = {
    "roberta-base": (50_265, 124_645_632),
    "roberta-large": (50_265, 355_359_744),
    "albert-base": (30_000, 11_683_584),
    "albert-large": (30_000, 17_683_968),
    "albert-xlarge": (30_000, 58_724_864),
    "albert-xxlarge": (30_000, 222_595_584),
    "electra-small": (30_522, 13_483_008),
    "electra-base": (30_522, 108_891_648),
    "electra-large": (30_522, 334_092_288),
    "distilbert": (30_522, 66_362_880),
    "tinybert-4": (30_522, 14_350_248),
    "tinybert-6": (30_522, 66_955_008),
    "deberta-base": (50_265, 138_601_728),
    "deberta-large": (50_265, 405_163_008),
    "deberta-v3-xsmall": (128_100, 70_682_112),
    "deberta-v3-small": (128_100, 141_304_320),
    "deberta-v3-base": (128_100, 183_831_552),
    "deberta-v3-large": (128_100, 434_012_160),
    "modernbert-base": (50_368, 149_014_272),
    "modernbert-large": (50_368, 394_781_696),
}
KINDS = {  # of vocabulary, and whether it is lower-cased; WordPiece of uncased text where none is named
    "roberta": ("byte_bpe", False),
    "albert": ("unigram", True),
    "deberta": ("byte_bpe", False),
    "deberta_v2": ("unigram", False),
    "modernbert": ("byte_bpe", False),
}
WITH_POOLER = ("bert", "roberta", "albert")  # transformers' encoder has one


def test_every_member_has_a_published_size():
    assert COUNTS.keys() == published().keys()


@pytest.mark.parametrize("name", COUNTS)
def test_a_member_is_a_study_with_the_published_number_of_parameters(root, name):
    text = render_published(name, (root / f"workflow/presets/{BASIS}.yaml").read_text(encoding="utf-8"))
    study, (entries, count) = check_study(yaml.safe_load(text)), COUNTS[name]
    for key, original in published()[name].departs.items():
        assert any(f"{key.rpartition('.')[2]}:" in line and original in line for line in text.splitlines()), key
    architecture = load_architecture(study.model.architecture)
    padding = {"pad_token_id": 1} if study.model.architecture == "roberta" else {}
    vocabulary = study.vocabulary
    assert (vocabulary.kind, vocabulary.lowercase) == KINDS.get(study.model.architecture, ("wordpiece", True))
    assert vocabulary.entries == entries
    config = architecture.config.from_params(study.model, vocabulary.entries, **padding)
    found = architecture.parameters(config)
    if (
        study.model.architecture not in WITH_POOLER
    ):  # ours has one for tasks, and DeBERTa's the mask decoder's positions
        found -= config.hidden_size**2 + config.hidden_size
        found -= config.max_position_embeddings * config.hidden_size if hasattr(config, "mask_decoder") else 0
    assert found == count


def test_what_bert_base_says_of_a_value_is_not_said_of_another(root):
    basis = (root / f"workflow/presets/{BASIS}.yaml").read_text(encoding="utf-8")
    lines = render_published("roberta-large", basis).splitlines()
    assert "  layers: 24" in lines and "  batch: 8192" in lines and "model:" in lines and "pretrain:" in lines
    changed = [line for line in lines if line.lstrip().startswith(("entries:", "kind:", "objective:", "warmup:"))]
    assert len(changed) == 4 and not any("30,000" in line or "(ALBERT)" in line for line in changed)
    assert "  lengths: {short: 512, long: 512}" in lines
    assert "  validation: 0.001" in lines and any("section 3.1" in line for line in lines), "others keep theirs"
