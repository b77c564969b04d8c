"""Offload: weights that do not fit lie in a slower place and are read from there as steps need them. Owns the split.

Experts of mixtures are kept in memory as far as there is room, the rest are fetched when chosen; of dense weights the
part that does not fit is read anew each step. Fetching does not overlap with computing in this sum.
"""

from dataclasses import dataclass, replace

from twostroke.errors import ConfigError, NotEnoughMemoryError
from twostroke.roofline.memory_sum import MemorySum
from twostroke.roofline.planned_model import PlannedModel
from twostroke.roofline.target import Target
from twostroke.roofline.work import Work

_TIERS = ("host", "disk")


@dataclass(frozen=True, slots=True)
class Offload:
    """Where weights lie that do not fit: "host" memory or "disk", read at `byte_s`.

    hits   share of chosen experts that are in memory; None for as many as there is room for
    """

    tier: str
    byte_s: float
    hits: float | None
    source: str

    def __post_init__(self) -> None:
        if self.tier not in _TIERS or not self.byte_s > 0:
            raise ConfigError(f"offload is to {' or '.join(_TIERS)}, at more than 0 GB/s")
        if self.hits is not None and not 0 <= self.hits <= 1:
            raise ConfigError(f"the share of experts found in memory is from 0 to 1, not {self.hits}")


@dataclass(frozen=True, slots=True)
class Split:
    """What of a model is in memory: bytes of weights, the share of dense weights read from outside each step, the share
    of chosen experts found in memory."""

    resident_bytes: float
    streamed: float
    hits: float

    def outside_bytes(self, work: Work) -> float:
        """Bytes that work reads from outside the memory."""
        return self.streamed * work.weight_bytes + (1 - self.hits) * work.expert_bytes


def offload_to(text: str, target: Target, hits: float | None) -> Offload:
    """From "host" or "disk", with ":GB/s" where the hardware's own rate is not known. Raises ConfigError."""
    tier, _, rate = text.partition(":")
    known = {"host": target.link_byte_s, "disk": target.storage_byte_s}
    if tier not in known:
        raise ConfigError(f"offload is to {' or '.join(_TIERS)}, not {tier[:40]!r}")
    if rate:
        try:
            return Offload(tier, float(rate) * 1e9, hits, "as given")
        except ValueError:
            raise ConfigError(f"offload: {rate[:40]!r} is no number of GB/s") from None
    found = known[tier]
    if found is None:
        raise ConfigError(f"{target.name}: the rate of its {tier} is not known; say --offload {tier}:GB/s")
    return Offload(tier, found, hits, target.source)


def split(model: PlannedModel, memory: MemorySum, offload: Offload) -> Split:
    """What stays in memory. Raises NotEnoughMemoryError where there is no room even for what is no weight."""
    weights = memory.weight_bytes - memory.host_bytes
    if memory.capacity_bytes is None or memory.fits:
        return Split(weights, 0.0, 1.0)
    room = memory.capacity_bytes - (memory.total_bytes - weights)
    if room <= 0:
        raise NotEnoughMemoryError(
            f"{model.name}: {(memory.total_bytes - weights) / 1e9:.2f} GB are needed besides weights,"
            f" available are {memory.capacity_bytes / 1e9:.2f} GB"
        )
    experts = min(weights, model.expert_bytes)
    dense = weights - experts
    in_room = min(dense, room)
    cached = min(experts, room - in_room)
    found = cached / experts if experts else 1.0
    hits = found if offload.hits is None or not experts else offload.hits
    return Split(in_room + cached, 1 - in_room / dense if dense else 0.0, hits)


def resident(memory: MemorySum, found: Split) -> MemorySum:
    """The sum with only the weights that are in memory."""
    return replace(memory, weight_bytes=found.resident_bytes + memory.host_bytes)
