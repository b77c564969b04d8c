"""Program: a flat list of ops over named values. Owns order, shapes and cache groups; builds and runs nothing."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from twostroke.program.ops import CACHED, GatedDelta, Op, ProgramError
from twostroke.program.values import Cache, CacheGroupKey, Value, Weight


@dataclass(frozen=True)
class CacheGroup:
    """Caches that keep the same tokens of a request and so share one block table; those of kind "state" keep none."""

    kind: str
    window: int | None
    caches: tuple[Cache, ...]
    segment: int | None = None

    @property
    def elements_per_token(self) -> int:
        return sum(cache.elements_per_token for cache in self.caches)

    @property
    def state_elements(self) -> int:
        """Elements whatever the number of tokens."""
        return sum(cache.state_elements for cache in self.caches)

    def tokens_kept(self, num_tokens: int) -> int:
        """How many of a request's latest tokens a row may still have to read."""
        return min(num_tokens, self.window or num_tokens, self.segment or num_tokens)


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
    def caches(self) -> tuple[Cache, ...]:
        """Every cache once, in order of first use. Raises ProgramError for two of one name that differ."""
        caches: dict[str, Cache] = {}
        for op in self.ops:
            if isinstance(op, CACHED) and caches.setdefault(op.cache.name, op.cache) != op.cache:
                raise ProgramError(f"cache {op.cache.name} is used in two shapes")
        return tuple(caches.values())

    @cached_property
    def cache_groups(self) -> tuple[CacheGroup, ...]:
        groups: dict[CacheGroupKey, list[Cache]] = {}
        for cache in self.caches:
            groups.setdefault(cache.group, []).append(cache)
        return tuple(
            CacheGroup(kind, window, tuple(caches), segment) for (kind, window, segment), caches in groups.items()
        )

    @property
    def chunk_alignment(self) -> int:
        """Chunks of a prompt, but for its last, are best a multiple of this many tokens: what recurrent ops take at
        once; 1 where there are none."""
        return math.lcm(*(op.chunk for op in self.ops if isinstance(op, GatedDelta)))

    def readers(self, name: str) -> list[Op]:
        return self._readers.get(name, [])

    @cached_property
    def _readers(self) -> dict[str, list[Op]]:
        """The ops that read each value, in order: passes ask for all of them."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                found.setdefault(name, []).append(op)
        return found

    def lines(self) -> Iterator[str]:
        """The program as text, a line an op."""
        for op in self.ops:
            written = ", ".join(str(self.values[name]) for name in op.outputs)
            weights = ", ".join(map(str, op.weights))
            yield f"{written} = {op.kind}({', '.join(op.inputs)}{'; ' if weights else ''}{weights})"

    def __str__(self) -> str:
        return "\n".join(self.lines())
