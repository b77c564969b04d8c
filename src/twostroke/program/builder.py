"""Builder: what a model family writes its program with. Owns naming of values and weights; knows no family."""

from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.program import ops
from twostroke.program.experts import Routed
from twostroke.program.ops import Activation, GatedActivation, Op
from twostroke.program.program import Program
from twostroke.program.values import CacheSpec, LatentSpec, Norm, RopeSpec, StateSpec, Value, Weight


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

    def unit_norm(self, x: Value, eps: float, *, group_dim: int | None = None) -> Value:
        """As `rms_norm`, without weights."""
        return self._append(ops.Normalize(self._fresh(f"{x.name}.norm"), x.name, Norm(None, eps), group_dim))

    def layer_norm(
        self, x: Value, name: str, eps: float, *, bias: bool = True, offset: float = 0.0, group_dim: int | None = None
    ) -> Value:
        """`group_dim` normalises each stretch of that many elements, such as a head, with weights of its own."""
        shape = (x.dim,) if group_dim is None else (x.dim // group_dim, group_dim)
        biases = Weight(f"{name}.bias", shape) if bias else None
        norm = Norm(Weight(f"{name}.weight", shape), eps, "layer", biases, offset)
        return self._append(ops.Normalize(self._fresh(name), x.name, norm, group_dim))

    def linear(self, x: Value, name: str, dim: int, *, bias: bool = False) -> Value:
        matrix = Weight(f"{name}.weight", (dim, x.dim))
        biases = (Weight(f"{name}.bias", (dim,)) if bias else None,)
        return self._append(ops.Linear((self._fresh(name),), x.name, (matrix,), biases))

    def rope(self, x: Value, head_dim: int, rope: RopeSpec) -> Value:
        return self._append(ops.Rope(self._fresh(f"{x.name}.rope"), x.name, head_dim, rope))

    def attention(
        self,
        q: Value,
        k: Value | None,
        v: Value | None,
        cache: CacheSpec,
        *,
        scale: float | None = None,
        soft_cap: float | None = None,
        sinks: str | None = None,
    ) -> Value:
        """Head count follows from q's dim; `scale` defaults to 1/sqrt(head_dim); `sinks` names a tensor. Without k and
        v the cache is one that an earlier attention wrote."""
        scale = cache.head_dim**-0.5 if scale is None else scale
        heads = q.dim // cache.head_dim
        sink = None if sinks is None else Weight(f"{sinks}.weight", (heads,))
        keys, values = (None if x is None else x.name for x in (k, v))
        name = self._fresh(cache.name)
        return self._append(
            ops.Attention(name, q.name, keys, values, heads, cache, scale, soft_cap=soft_cap, sinks=sink)
        )

    def latent_attention(
        self,
        inputs: tuple[Value, Value, Value],
        name: str,
        *,
        num_heads: int,
        value_dim: int,
        rope: RopeSpec,
        scale: float,
    ) -> Value:
        """`inputs` are queries, latents and rotated keys, `name` is of the matrix that expands latents."""
        q, latent, k_rope = inputs
        content = q.dim // num_heads - k_rope.dim
        expand = Weight(f"{name}.weight", (num_heads * (content + value_dim), latent.dim))
        cache = LatentSpec(f"{name}.cache", latent.dim, k_rope.dim)
        names = (self._fresh(f"{name}.attention"), q.name, latent.name, k_rope.name)
        return self._append(ops.LatentAttention(*names, expand, num_heads, content, cache, rope, scale))

    def convolution(self, x: Value, name: str, width: int) -> Value:
        cache = StateSpec(f"{name}.state", (width - 1) * x.dim)
        weight = Weight(f"{name}.weight", (x.dim, width))
        return self._append(ops.Convolution(self._fresh(name), x.name, weight, cache))

    def gated_delta(
        self, q: Value, k: Value, v: Value, write: Value, decay: Value, prefix: str, *, num_key_heads: int
    ) -> Value:
        """Value heads are as many as `write` has elements; `prefix`_a and _dt are the decay's logarithm and bias."""
        heads = write.dim
        state = StateSpec(f"{prefix}.state", q.dim // num_key_heads * v.dim)
        log_decay, bias = Weight(f"{prefix}_a.weight", (heads,)), Weight(f"{prefix}_dt.bias", (heads,))
        q_name, k_name, v_name, write_name, decay_name = (x.name for x in (q, k, v, write, decay))
        names = (self._fresh(f"{prefix}.delta"), q_name, k_name, v_name, write_name, decay_name)
        return self._append(ops.GatedDelta(*names, log_decay, bias, num_key_heads, heads, state))

    def add_position(self, x: Value, name: str, num_positions: int, *, first: int = 0) -> Value:
        table = Weight(f"{name}.weight", (num_positions, x.dim))
        return self._append(ops.AddPosition(self._fresh(f"{x.name}.positions"), x.name, table, first))

    def add_vector(self, x: Value, name: str, num_vectors: int) -> Value:
        """The table's first row is added."""
        table = Weight(f"{name}.weight", (num_vectors, x.dim))
        return self._append(ops.AddVector(self._fresh(name), x.name, table))

    def encoder_attention(self, q: Value, k: Value, v: Value, name: str, num_heads: int) -> Value:
        scale = (q.dim // num_heads) ** -0.5
        return self._append(ops.EncoderAttention(self._fresh(name), q.name, k.name, v.name, num_heads, scale))

    def scale_by_position(self, x: Value, period: int, strength: float, shift: int = 0) -> Value:
        output = self._fresh(f"{x.name}.scale_by_position")
        return self._append(ops.ScaleByPosition(output, x.name, period, strength, shift))

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

    def columns(self, x: Value, first: int, dim: int) -> Value:
        """`dim` elements of each row from `first` on."""
        return self._append(ops.Columns(self._fresh(f"{x.name}.columns"), x.name, first, dim))

    def gated(self, gate: Value, up: Value, activation: GatedActivation) -> Value:
        return self._append(ops.Gated(self._fresh(f"{gate.name}.gated"), gate.name, up.name, activation))

    def swiglu(self, gate: Value, up: Value) -> Value:
        return self.gated(gate, up, "silu")

    def activate(self, x: Value, activation: Activation) -> Value:
        return self._append(ops.Activate(self._fresh(f"{x.name}.{activation}"), x.name, activation))

    def scale(self, x: Value, factor: float) -> Value:
        """x itself where the factor is 1."""
        return x if factor == 1.0 else self._append(ops.Scale(self._fresh(f"{x.name}.scale"), x.name, factor))

    def scale_by_weight(self, x: Value, name: str) -> Value:
        return self._append(ops.ScaleByWeight(self._fresh(name), x.name, Weight(f"{name}.weight", (1,))))

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
