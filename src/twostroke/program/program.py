"""Program: a flat list of ops over named values. Owns order, shapes and cache groups; builds and runs nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from twostroke.program.ops import Attention, Op, ProgramError
from twostroke.program.values import CacheSpec, Value, Weight


@dataclass(frozen=True)
class CacheGroup:
    """Caches that keep the same tokens of a request and so share one block table."""

    kind: str
    window: int | None
    caches: tuple[CacheSpec, ...]

    @property
    def elements_per_token(self) -> int:
        return sum(cache.elements_per_token for cache in self.caches)


@dataclass(frozen=True)
class Program:
    """Ops in the order they run. `outputs` maps public names ("logits", "hidden") to value names."""

    ops: tuple[Op, ...]
    outputs: Mapping[str, str]

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name, shapes inferred by the ops' rules. Raises ProgramError where parts do not fit."""
        values: dict[str, Value] = {}
        for op in self.ops:
            missing = [name for name in op.inputs if name not in values]
            if missing:
                raise ProgramError(f"{op.kind} reads {missing[0]} before it is written")
            for value in op.shapes(values):
                if value.name in values:
                    raise ProgramError(f"{value.name} is written twice")
                values[value.name] = value
        for public, name in self.outputs.items():
            if name not in values:
                raise ProgramError(f"output {public} names {name}, which no op writes")
        return values

    @cached_property
    def weights(self) -> dict[str, Weight]:
        """Every weight by name, in order of first use."""
        weights: dict[str, Weight] = {}
        for op in self.ops:
            for weight in op.weights:
                if weights.setdefault(weight.name, weight) != weight:
                    raise ProgramError(f"{weight.name} is used in two shapes")
        return weights

    @cached_property
    def caches(self) -> tuple[CacheSpec, ...]:
        return tuple(op.cache for op in self.ops if isinstance(op, Attention))

    @cached_property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        groups: dict[tuple[str, int | None], list[CacheSpec]] = {}
        for cache in self.caches:
            groups.setdefault(cache.group, []).append(cache)
        return tuple(CacheGroup(kind, window, tuple(caches)) for (kind, window), caches in groups.items())

    def readers(self, name: str) -> list[Op]:
        return [op for op in self.ops if name in op.inputs]

    def lines(self) -> Iterator[str]:
        """The program as text, a line an op."""
        for op in self.ops:
            written = ", ".join(str(self.values[name]) for name in op.outputs)
            weights = ", ".join(map(str, op.weights))
            yield f"{written} = {op.kind}({', '.join(op.inputs)}{'; ' if weights else ''}{weights})"

    def __str__(self) -> str:
        return "\n".join(self.lines())
