"""Bidirectional LSTM language model after ELMo (Peters et al. 2018): a forward and a backward LSTM, never combined."""

from pipeline_src.base.registry import ArchitectureSpec, ObjectiveSpec

ARCHITECTURES = {
    "bilstm": ArchitectureSpec(
        pads_sequences=True,
        # The hidden size must be even, since each direction has half of it.
        even="hidden",
        refused_objectives={
            "clm": "one of its halves reads from the end; bilm is learnt by each half",
            "tinybert": "it has no attention to imitate",
        },
    )
}
OBJECTIVES = {
    "bilm": ObjectiveSpec(
        terms={"mlm": 0.5, "backward": 0.5},
        validation_columns=("mlm_loss", "mlm_accuracy"),
        collator="clm",
        refused_pairs="nothing reads both of a pair's segments",
        # In a BiLSTM, the two directions are never combined. Another encoder would see the tokens to predict.
        only_architectures=("bilstm",),
    )
}
