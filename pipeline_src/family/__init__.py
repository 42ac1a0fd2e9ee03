"""The members of the family, a folder each."""

# ArchitectureSpec.refused_objectives of most encoders.
NO_CAUSAL_MODEL = {"clm": "it reads both directions, and transformers has no class for one"}
