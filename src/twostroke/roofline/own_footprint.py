"""What this engine would allocate for a model that is only planned. Owns the stand-in for its weights.

The sums are `native.footprint`'s, which the engine's own check uses: one code for the plan and the run.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twostroke.errors import UnsupportedModelError
from twostroke.native.executor import KV_BITS
from twostroke.native.footprint import Footprint, footprint
from twostroke.roofline.planned_model import PlannedModel
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

if TYPE_CHECKING:
    from twostroke.roofline.memory_sum import Room

# A type for each number of bits: sizes are all that is asked.
_TYPES = {kind.bits_per_weight: kind for kind in reversed(TensorType)}


@dataclass(frozen=True)
class PlannedTensors:
    """Names, shapes and types of a planned model's weights."""

    model: PlannedModel

    def info(self, name: str) -> TensorInfo:
        """A tensor that lies nowhere."""
        weight = self.model.program.weights[name]
        kind = _TYPES[self.model.bits[name]]
        return TensorInfo(name, weight.shape, kind, 0, kind.row_bytes(weight.num_elements))


def own_footprint(model: PlannedModel, room: "Room", context: int, kv: str) -> Footprint | None:
    """The engine's allocations; None where it does not have the model's types or ops."""
    if kv not in KV_BITS or any(bits not in _TYPES for bits in model.bits.values()):
        return None
    try:
        return footprint(
            model.program,
            PlannedTensors(model),
            num_threads=room.num_threads,
            max_context=context,
            max_step_tokens=room.chunk_tokens,
            kv_bits=KV_BITS[kv],
        )
    except UnsupportedModelError:
        return None
