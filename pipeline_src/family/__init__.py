"""The models of the BERT family, one folder for each."""

# Value of ArchitectureSpec.refused_objectives for bidirectional encoders: objective -> reason.
NO_CAUSAL_MODEL = {"clm": "it reads both directions, and transformers has no class for one"}
