"""Builder: what a model family writes its program with. Owns naming of values and weights; knows no family."""

from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.program import ops
from twostroke.program.ops import Op
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

    def rms_norm(self, x: Value, name: str, eps: float) -> Value:
        return self._append(ops.RmsNorm(self._fresh(name), x.name, Norm(Weight(f"{name}.weight", (x.dim,)), eps)))

    def linear(self, x: Value, name: str, dim: int, *, bias: bool = False) -> Value:
        matrix = Weight(f"{name}.weight", (dim, x.dim))
        biases = (Weight(f"{name}.bias", (dim,)) if bias else None,)
        return self._append(ops.Linear((self._fresh(name),), x.name, (matrix,), biases))

    def rope(self, x: Value, head_dim: int, rope: RopeSpec) -> Value:
        return self._append(ops.Rope(self._fresh(f"{x.name}.rope"), x.name, head_dim, rope))

    def attention(self, q: Value, k: Value, v: Value, cache: CacheSpec, *, scale: float | None = None) -> Value:
        """Head count follows from q's dim; `scale` defaults to 1/sqrt(head_dim)."""
        scale = cache.head_dim**-0.5 if scale is None else scale
        heads = q.dim // cache.head_dim
        return self._append(ops.Attention(self._fresh(cache.name), q.name, k.name, v.name, heads, cache, scale))

    def add(self, left: Value, right: Value) -> Value:
        return self._append(ops.Add(self._fresh(f"{right.name}.add"), left.name, right.name))

    def swiglu(self, gate: Value, up: Value) -> Value:
        return self._append(ops.SwiGLU(self._fresh(f"{gate.name}.swiglu"), gate.name, up.name))

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
