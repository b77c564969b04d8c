"""Account: sums of work, kept in the cost model's units and priced when read. Owns the arithmetic of shares."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, mul

from twostroke.program.cost import OF_CONTEXT, ChunkShape, CostModel, Resource, Unit, measure


@dataclass(frozen=True, slots=True)
class PhaseTotals:
    """What one phase did and cost.

    tokens          rows computed for the first time: prompt tokens, or generated tokens after the first
    rows            all rows, those computed again after a preemption included
    steps           steps with rows of the phase
    seconds         of the engine's steps; native_seconds is the part inside the executor
    flops, *_bytes  by the cost model
    """

    tokens: int
    rows: int
    steps: int
    seconds: float
    native_seconds: float
    flops: float
    weight_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def bytes(self) -> float:
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    @property
    def flop_s(self) -> float:
        """Achieved FLOP/s, 0 where nothing ran."""
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def byte_s(self) -> float:
        """Achieved bytes/s, 0 where nothing ran."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def tok_s(self) -> float:
        """Tokens a second, 0 where nothing ran."""
        return self.tokens / self.seconds if self.seconds else 0.0


class Rates:
    """A cost model laid out for adding up: amounts of its units in a fixed order, and what one of each costs.

    Cost is linear in the units, so sums of units are kept and priced once, when somebody reads them.
    """

    def __init__(self, cost: CostModel) -> None:
        plain = tuple((unit, None) for unit in (Unit.STEP, Unit.OUTPUT_STEP, Unit.ROW, Unit.OUTPUT))
        keys = {(unit, scope) for _, unit, scope in cost.coefficients}
        self._measured = tuple(sorted(keys.difference(plain), key=str))
        units = (*plain, *self._measured)
        self.num_units = len(units)
        self._prices = {
            resource: [cost.coefficients.get((resource, *unit), 0.0) for unit in units] for resource in Resource
        }
        flops = self._prices[Resource.FLOPS]
        self._of_context = [(i, flops[i]) for i, (unit, _) in enumerate(units) if unit in OF_CONTEXT and flops[i]]

    def price(self, resource: Resource, amounts: Sequence[float]) -> float:
        """FLOPs or bytes of those amounts."""
        cost: float = sum(map(mul, self._prices[resource], amounts))
        return cost

    def context_flops(self, amounts: Sequence[float]) -> float:
        """Those of the FLOPs that grow with what rows see: attention's."""
        return sum(amounts[index] * price for index, price in self._of_context)

    def amounts(self, chunk: ChunkShape, row_share: float, output_share: float) -> list[float]:
        """The chunk's units. What a step has once is divided by these shares of the step's rows and outputs."""
        amounts = [row_share, output_share, chunk.length, chunk.num_outputs]
        for unit, scope in self._measured:
            if unit is Unit.EXPERTS:  # those that any row of the step chooses
                step = ChunkShape(0, round(chunk.length / row_share), 0)
                amounts.append(measure(unit, scope, (step,)) * row_share)
            else:
                amounts.append(measure(unit, scope, (chunk,)))
        return amounts


class Account:
    """Running sums for one phase: of everything, of one request, or of one step."""

    __slots__ = ("_amounts", "_rates", "native_seconds", "rows", "seconds", "steps", "tokens")

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._amounts = [0.0] * rates.num_units
        self.tokens = self.rows = self.steps = 0
        self.seconds = self.native_seconds = 0.0

    def add(self, amounts: Sequence[float], rows: int, tokens: int, seconds: float, native_seconds: float) -> None:
        """Adds one chunk, or one step: `rows` of which `tokens` are computed for the first time."""
        self._amounts = list(map(add, self._amounts, amounts))
        self.rows += rows
        self.tokens += tokens
        self.seconds += seconds
        self.native_seconds += native_seconds

    def add_step(self, step: "Account") -> None:
        """Adds the sums of one step."""
        self.add(step._amounts, step.rows, step.tokens, step.seconds, step.native_seconds)
        self.steps += 1

    @classmethod
    def sum_of(cls, steps: Sequence["Account"]) -> "Account | None":
        """The sums of several steps together, priced once; None of none."""
        if not steps:
            return None
        total = cls(steps[0]._rates)
        for step in steps:
            total.add_step(step)
        return total

    def context_flops(self) -> float:
        """Those of the FLOPs that grow with what rows see: attention's."""
        return self._rates.context_flops(self._amounts)

    def totals(self) -> PhaseTotals:
        """The sums so far, priced."""
        price = self._rates.price
        return PhaseTotals(
            self.tokens,
            self.rows,
            self.steps,
            self.seconds,
            self.native_seconds,
            price(Resource.FLOPS, self._amounts),
            price(Resource.WEIGHT_BYTES, self._amounts),
            price(Resource.KV_BYTES, self._amounts),
            price(Resource.ACTIVATION_BYTES, self._amounts),
        )
