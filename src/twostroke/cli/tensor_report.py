"""A model file's tensors as figures: by type, and one by one. Owns the sums and the tables; reads no file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from twostroke.cli.figures import bytes_text, count_text, printable, table
from twostroke.cli.stored_model import StoredTensor


@dataclass(frozen=True, slots=True)
class TypeShare:
    """All tensors of one type: how many, their weights, their bytes in the file, and the part of all tensors' bytes."""

    type: str
    count: int
    parameters: int
    bytes: int
    bits_per_weight: float
    share: float


def type_shares(tensors: Iterable[StoredTensor]) -> list[TypeShare]:
    """Tensors summed by type, most bytes first."""
    groups: dict[str, list[StoredTensor]] = {}
    for info in tensors:
        groups.setdefault(info.type, []).append(info)
    total = sum(info.num_bytes for group in groups.values() for info in group)
    shares = [_share(name, group, total) for name, group in groups.items()]
    return sorted(shares, key=lambda share: share.bytes, reverse=True)


def mix_text(shares: Iterable[TypeShare]) -> str:
    """Types that hold at least a percent of the bytes: "Q4_1 68%, Q8_0 32%"."""
    return ", ".join(f"{share.type} {share.share:.0%}" for share in shares if share.share >= 0.01)


def type_lines(shares: Iterable[TypeShare]) -> Iterator[str]:
    """The table by type."""
    rows = [["type", "tensors", "parameters", "bytes", "bits/weight", "share"]]
    for share in shares:
        sizes = [f"{share.count:,}", count_text(share.parameters), bytes_text(share.bytes)]
        rows.append([share.type, *sizes, f"{share.bits_per_weight:.2f}", f"{share.share:.1%}"])
    return table(rows)


def tensor_fields(info: StoredTensor) -> dict[str, object]:
    """One tensor for JSON; shape in NumPy order, offset and size in bytes."""
    return {
        "name": info.name,
        "type": info.type,
        "shape": list(info.shape),
        "parameters": info.num_values,
        "bytes": info.num_bytes,
        "offset": info.offset,
    }


def tensor_lines(tensors: Iterable[StoredTensor]) -> Iterator[str]:
    """The table of all tensors, in file order."""
    rows = [["tensor", "type", "shape", "bytes"]]
    for info in tensors:
        shape = " x ".join(f"{size:,}" for size in info.shape)
        rows.append([printable(info.name), info.type, shape, bytes_text(info.num_bytes)])
    return table(rows, left=2)


def _share(name: str, group: list[StoredTensor], total: int) -> TypeShare:
    parameters = sum(info.num_values for info in group)
    num_bytes = sum(info.num_bytes for info in group)
    return TypeShare(name, len(group), parameters, num_bytes, 8 * num_bytes / parameters, num_bytes / total)
