"""Builder: what a model family writes its program with. Owns naming of values and weights; knows no family."""

from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.program import ops
from twostroke.program.experts import Routed
from twostroke.program.ops import Activation, GatedActivation, Op
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec, Norm, RopeSpec, Value, Weight


@dataclass(frozen=True, slots=True)
class Layer:
    """Prefix of one layer's weights and caches: `layer / "attn_q"` is "blk.3.attn_q"."""

    index: int

    def __truediv__(self, name: str) -> str:
        return f"blk.{self.index}.{name}"


class Builder:
    """Appends ops; each method returns the value it wrote, so that a family reads as its equations."""

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self._values: dict[str, Value] = {}
        self._outputs: dict[str, str] = {}

    def layers(self, count: int) -> Iterator[Layer]:
        return map(Layer, range(count))

    def embed(self, name: str, vocab_size: int, dim: int) -> Value:
        return self._append(ops.Embed(self._fresh("embed"), Weight(f"{name}.weight", (vocab_size, dim))))

    def rms_norm(self, x: Value, name: str, eps: float, *, offset: float = 0.0, group_dim: int | None = None) -> Value:
        """`group_dim` normalises each stretch of that many elements, such as a head, with the same weights."""
        norm = Norm(Weight(f"{name}.weight", (group_dim or x.dim,)), eps, offset=offset)
        return self._append(ops.Normalize(self._fresh(name), x.name, norm, group_dim))

    def layer_norm(self, x: Value, name: str, eps: float, *, bias: bool = True) -> Value:
        biases = Weight(f"{name}.bias", (x.dim,)) if bias else None
        norm = Norm(Weight(f"{name}.weight", (x.dim,)), eps, "layer", biases)
        return self._append(ops.Normalize(self._fresh(name), x.name, norm))

    def linear(self, x: Value, name: str, dim: int, *, bias: bool = False) -> Value:
        matrix = Weight(f"{name}.weight", (dim, x.dim))
        biases = (Weight(f"{name}.bias", (dim,)) if bias else None,)
        return self._append(ops.Linear((self._fresh(name),), x.name, (matrix,), biases))

    def rope(self, x: Value, head_dim: int, rope: RopeSpec) -> Value:
        return self._append(ops.Rope(self._fresh(f"{x.name}.rope"), x.name, head_dim, rope))

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        cache: CacheSpec,
        *,
        scale: float | None = None,
        soft_cap: float | None = None,
        sinks: str | None = None,
    ) -> Value:
        """Head count follows from q's dim; `scale` defaults to 1/sqrt(head_dim); `sinks` names a tensor."""
        scale = cache.head_dim**-0.5 if scale is None else scale
        heads = q.dim // cache.head_dim
        sink = None if sinks is None else Weight(f"{sinks}.weight", (heads,))
        name = self._fresh(cache.name)
        return self._append(
            ops.Attention(name, q.name, k.name, v.name, heads, cache, scale, soft_cap=soft_cap, sinks=sink)
        )

    def experts(
        self,
        x: Value,
        router: Value,
        prefix: str,
        ffn_dim: int,
        routed: Routed,
        *,
        activation: GatedActivation = "silu",
        bias: bool = False,
    ) -> Value:
        """Matrices are `prefix`_gate_exps, _up_exps and _down_exps; `router` holds the logits."""
        count, names = routed.num_experts, [f"{prefix}_{name}_exps" for name in ("gate", "up", "down")]
        rows, columns = (ffn_dim, ffn_dim, x.dim), (x.dim, x.dim, ffn_dim)
        gate, up, down = (
            Weight(f"{name}.weight", (count, row, column))
            for name, row, column in zip(names, rows, columns, strict=True)
        )
        gate_bias, up_bias, down_bias = (
            Weight(f"{name}.bias", (count, row)) for name, row in zip(names, rows, strict=True)
        )
        biases = (gate_bias, up_bias, down_bias) if bias else None
        output = self._fresh(f"{prefix}_exps")
        return self._append(ops.Experts(output, x.name, router.name, (gate, up, down), biases, routed, activation))

    def add(self, left: Value, right: Value) -> Value:
        return self._append(ops.Add(self._fresh(f"{right.name}.add"), left.name, right.name))

    def gated(self, gate: Value, up: Value, activation: GatedActivation) -> Value:
        return self._append(ops.Gated(self._fresh(f"{gate.name}.gated"), gate.name, up.name, activation))

    def swiglu(self, gate: Value, up: Value) -> Value:
        return self.gated(gate, up, "silu")

    def activate(self, x: Value, activation: Activation) -> Value:
        return self._append(ops.Activate(self._fresh(f"{x.name}.{activation}"), x.name, activation))

    def scale(self, x: Value, factor: float) -> Value:
        """x itself where the factor is 1."""
        return x if factor == 1.0 else self._append(ops.Scale(self._fresh(f"{x.name}.scale"), x.name, factor))

    def soft_cap(self, x: Value, cap: float | None) -> Value:
        """x itself where there is no cap."""
        return x if cap is None else self._append(ops.SoftCap(self._fresh(f"{x.name}.soft_cap"), x.name, cap))

    def sigmoid_gate(self, x: Value, gate: Value) -> Value:
        return self._append(ops.SigmoidGate(self._fresh(f"{x.name}.sigmoid_gate"), x.name, gate.name))

    def output_rows(self, x: Value) -> Value:
        return self._append(ops.OutputRows(self._fresh("output_rows"), x.name))

    def output(self, public: str, x: Value) -> None:
        self._outputs[public] = x.name

    def build(self) -> Program:
        program = Program(tuple(self._ops), dict(self._outputs))
        program.values  # noqa: B018 - infers every shape now, so that a family's defect shows where it is built
        return program

    def _fresh(self, name: str) -> str:
        candidate, count = name, 1
        while candidate in self._values:
            count += 1
            candidate = f"{name}.{count}"
        return candidate

    def _append(self, op: Op) -> Value:
        (value,) = op.shapes(self._values)
        self._ops.append(op)
        self._values[value.name] = value
        return value
