"""The mixture-of-experts op. Part of the vocabulary of `ops`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from twostroke.program.elementwise import GatedActivation
from twostroke.program.op import Op, require
from twostroke.program.values import Value, Weight

Routing = Literal["softmax_topk", "topk_softmax", "sigmoid_topk"]


@dataclass(frozen=True, slots=True)
class Routed:
    """How rows choose experts: the `top_k` largest scores of each row, of equal ones the lower ids.

    A score is the softmax over all logits ("softmax_topk"), or over those chosen ("topk_softmax"), or the sigmoid of
    the logit ("sigmoid_topk"). It is the weight of a chosen expert, with `renormalize` divided by the sum of those
    chosen, times `scale`. `weighs_input`: the weight multiplies the expert's input, not its output (Llama 4).

    With `num_groups` above 1, experts are chosen within the `top_groups` best of that many equal groups only, by their
    largest score, or with `choice_bias` by the sum of their two largest (DeepSeek-AI 2024). That bias (num_experts,) is
    added to the scores that experts are chosen by, not to their weights; `expert_scales` (num_experts,) multiply those
    (Gemma 4).
    """

    num_experts: int
    top_k: int
    kind: Routing
    renormalize: bool = False
    scale: float = 1.0
    num_groups: int = 1
    top_groups: int = 1
    weighs_input: bool = False
    choice_bias: Weight | None = None
    expert_scales: Weight | None = None

    @property
    def weights(self) -> tuple[Weight, ...]:
        return tuple(weight for weight in (self.choice_bias, self.expert_scales) if weight is not None)


@dataclass(frozen=True, slots=True)
class Experts(Op):
    """Gated feed-forward experts (Shazeer et al. 2017): the sum of weight_e * expert_e(x) over a row's experts e.

    expert(x) = down @ gated(gate @ x, up @ x), each product plus its bias where there is one. `router` is the value of
    logits (num_rows, num_experts). gate and up are (num_experts, ffn_dim, dim), down (num_experts, dim, ffn_dim);
    biases lack the last dimension. A row's experts are summed in the order of their ids.
    """

    kind: ClassVar[str] = "experts"
    output: str
    input: str
    router: str
    matrices: tuple[Weight, Weight, Weight]  # gate, up, down
    biases: tuple[Weight, Weight, Weight] | None
    routed: Routed
    activation: GatedActivation

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.input, self.router)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return self.matrices + (self.biases or ()) + self.routed.weights

    @property
    def ffn_dim(self) -> int:
        return self.matrices[0].shape[1]

    def shapes(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        x, router, count = values[self.input], values[self.router], self.routed.num_experts
        require((router.dim, router.rows) == (count, x.rows), f"{router} is not a logit for each of {count} experts")
        groups, chosen = self.routed.num_groups, self.routed.top_groups
        require(count % groups == 0 and 1 <= chosen <= groups, f"{count} experts, {chosen} of {groups} groups")
        for weight in self.routed.weights:
            require(weight.shape == (count,), f"{weight} is not one an expert")
        require(
            1 <= self.routed.top_k <= count // groups * chosen, f"a row chooses {self.routed.top_k} of {count} experts"
        )
        gate, up, down = self.matrices
        require(len(gate.shape) == 3, f"{gate} is not a matrix an expert")
        inner, outer = (count, gate.shape[1], x.dim), (count, x.dim, gate.shape[1])
        for matrix, shape in ((gate, inner), (up, inner), (down, outer)):
            require(matrix.shape == shape, f"{matrix} is not {count} matrices that multiply {x}")
        for matrix, bias in zip(self.matrices, self.biases or (), strict=False):
            require(bias.shape == matrix.shape[:2], f"{bias} does not fit {matrix}")
        return (Value(self.output, x.dim, x.rows),)
