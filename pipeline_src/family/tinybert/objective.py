"""TinyBERT's general distillation (Jiao et al. 2020, section 3.1): a student imitates its teacher's layers.

The losses are in ``model/layer_imitation.py``. No token is masked or predicted.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from pipeline_src.base.registry import objective_spec
from pipeline_src.model.attention import PackedBatch
from pipeline_src.model.bert import Bert, BertConfig, make_encoder
from pipeline_src.model.flops import Workload
from pipeline_src.model.layer_imitation import difference_counts, imitated_every, layer_differences
from pipeline_src.pretrain.data import TensorBatch
from pipeline_src.pretrain.objective import PretrainingObjective, SavedModel
from pipeline_src.study.schema import Section
from pipeline_src.training.trainer import LossTerm


class Student(nn.Module):
    """Encoder without a pooler, with a projection of its hidden states to ``width``, the teacher's hidden size.

    The output of the embeddings and of every layer is projected by the same matrix, even if the student is as wide as
    the teacher. The projection is saved with the model, but transformers does not load it.
    """

    def __init__(self, config: BertConfig, width: int) -> None:
        super().__init__()
        self.bert = make_encoder(config, has_pooler=False)
        self.fit_dense = nn.Linear(config.hidden_size, width)


class TinyBertObjective(PretrainingObjective[TensorBatch]):
    """Minimise mean squared differences between student and teacher, summed over layers.

    The term ``scores`` compares attention logits, averaged over heads and pairs of tokens. The term ``states`` compares
    embeddings and hidden states, averaged over tokens and the teacher's hidden size. Unlike the original code, padding
    is excluded.
    """

    spec = objective_spec("tinybert")
    build_teacher = partial(make_encoder, has_pooler=False)
    predictor = None
    learns = "the layers of a larger model"
    model: Student
    teacher: Bert

    def __init__(self, config: BertConfig, pairs: str, objective_params: Section | None = None) -> None:
        super().__init__(config, pairs, objective_params)
        self.weights = dict(self.spec.terms)

    def set_teacher(self, teacher: nn.Module) -> None:
        super().set_teacher(teacher)
        imitated_every(self.config, self.teacher.config)
        self.model = Student(self.config, self.teacher.config.hidden_size)

    def loss_counts(self, work: Workload) -> dict[str, int]:
        return difference_counts(self.config, self.teacher.config, work)

    def forward(self, batch: TensorBatch) -> dict[str, LossTerm]:
        layout = PackedBatch.of(batch.cu_seqlens, len(batch.ids), batch.max_seqlen)
        totals = layer_differences(
            self.model.bert, self.model.fit_dense, self.teacher, batch.ids, batch.segments, layout
        )
        return {name: LossTerm(total) for name, total in totals.items()}

    def training_flops(self, work: Workload) -> int:
        # FLOPs of the student, its projection and the teacher's forward pass, where both models compute all positions.
        # Attention logits are computed a second time, which is not counted.
        work = work._replace(num_outputs=work.tokens, attended_pairs=work.sum_len_squared)
        student, teacher = self.config, self.teacher.config
        projection = 6 * student.hidden_size * teacher.hidden_size * (student.num_hidden_layers + 1) * work.tokens
        return student.training_flops(work) + projection + teacher.training_flops(work) // 3

    def saved_models(self) -> dict[str, SavedModel]:
        return {"": SavedModel(self.model, self.config, self.config.names.classes["encoder"])}


OBJECTIVE = TinyBertObjective
