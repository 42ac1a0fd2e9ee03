"""The published family of BERT as presets: base and large (paper, section 3) and the small models (Turc et al. 2019).

A member is the preset ``bert-base`` with what differs: sizes, case and, for the small models, the grid of fine-tuning
that their release names (google-research/bert, README).
"""

from __future__ import annotations

from dataclasses import dataclass

from pipeline_src.tools.yaml_editor import YamlEditor, set_comment, set_title

BASIS = "bert-base"
NAMED = {  # layers, width
    "bert-tiny": (2, 128),
    "bert-mini": (4, 256),
    "bert-small": (4, 512),
    "bert-medium": (8, 512),
    "bert-base": (12, 768),
    "bert-large": (24, 1024),
}
SMALL_LAYERS, SMALL_WIDTHS = (2, 4, 6, 8, 10, 12), (128, 256, 512, 768)  # every combination was released
SMALL_RECIPE = """\
learning_rates:
- 0.0003
- 0.0001
- 0.00005
- 0.00003
epochs: 4
batches:
- 8
- 16
- 32
- 64
- 128
"""


@dataclass(frozen=True)
class Member:
    """One model of the family."""

    layers: int
    hidden: int
    cased: bool

    @property
    def about(self) -> str:
        """One line for people."""
        case = "cased" if self.cased else "uncased"
        return f"{self.layers} layers, {self.hidden} wide, {case}; as {BASIS}: full data, a cluster, official task sets"


def family() -> dict[str, Member]:
    """Every member by its preset's name, but for the basis itself: ``bert-mini``, ``bert-l6-h512``, ``…-cased``."""
    sizes = dict(NAMED)
    for layers in SMALL_LAYERS:
        for width in SMALL_WIDTHS:
            if (layers, width) not in NAMED.values():
                sizes[f"bert-l{layers}-h{width}"] = (layers, width)
    members = {}
    for name, (layers, width) in sorted(sizes.items(), key=lambda item: item[1]):
        members[name] = Member(layers, width, cased=False)
        members[f"{name}-cased"] = Member(layers, width, cased=True)
    del members[BASIS]
    return members


def render(name: str, member: Member, basis: str) -> str:
    """The member's preset: ``bert-base.yaml`` with the values that differ, and comments that say where they are from.

    Args:
        name: of the preset.
        member: what it is.
        basis: the text of ``bert-base.yaml``.
    """
    editor = YamlEditor(basis)
    study = editor.values
    small = (member.layers, member.hidden) != NAMED[BASIS] and member.hidden in SMALL_WIDTHS
    source = "Turc et al. 2019" if small else "section 3"
    set_title(study, f"{name}: {member.about}")
    study["model"].update(layers=member.layers, hidden=member.hidden)
    set_comment(study, "model", f"{source}: L={member.layers}, H={member.hidden}, A={member.hidden // 64}")
    if member.cased:
        study["vocabulary"].update(entries=28_996, lowercase=False)
        set_comment(study["vocabulary"], "entries", "the released cased vocabulary; 30,000 in the paper")
    if small:
        study["finetune"]["default"].update(YamlEditor(SMALL_RECIPE).values)
        set_comment(study["finetune"], "default", "google-research/bert, README")
    return editor.dumps()
