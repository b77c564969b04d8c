"""Every op kind has its four faces: shape, cost, reference, native."""

import pytest

from twostroke.program import ops
from twostroke.program.cost import COST_RULES
from twostroke.program.ops import OP_KINDS, Op
from twostroke.program.reference_ops import REFERENCE


def test_the_vocabulary_is_complete() -> None:
    defined = {kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, Op)} - {Op}
    assert set(OP_KINDS) == defined
    assert len({kind.kind for kind in OP_KINDS}) == len(OP_KINDS)


@pytest.mark.parametrize("kind", OP_KINDS, ids=lambda kind: kind.kind)
def test_shape_cost_and_reference(kind: type[Op]) -> None:
    assert "shapes" in vars(kind)
    assert kind in COST_RULES
    assert kind in REFERENCE


def test_no_face_is_of_a_kind_that_is_not_there() -> None:
    assert set(COST_RULES) == set(REFERENCE) == set(OP_KINDS)


@pytest.mark.parametrize("kind", OP_KINDS, ids=lambda kind: kind.kind)
def test_native(kind: type[Op]) -> None:
    """Code that lowers the op, or words for what is missing, by which it is refused."""
    lower = pytest.importorskip("twostroke.native.lower")
    refusals = pytest.importorskip("twostroke.native.refusals")
    assert (kind in lower.NATIVE) != (kind in refusals.NOT_NATIVE)
    assert set(lower.NATIVE) | set(refusals.NOT_NATIVE) == set(OP_KINDS)
