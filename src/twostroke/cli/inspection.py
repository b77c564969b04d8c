"""A model looked at: as much of it as can be understood, and why it cannot run where it cannot.

Owns the order of trying; each check is the one that running the model makes.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from twostroke.cli.program_report import ProgramReport, report_program
from twostroke.cli.stored_model import StoredModel
from twostroke.errors import ContextLengthError, TwostrokeError, UnsupportedModelError
from twostroke.models.gguf_config import architecture, config_from_gguf
from twostroke.models.load import load_model, with_parts
from twostroke.models.registry import build_program, family_of
from twostroke.native.refusals import refuse_unsupported
from twostroke.program.cost import Storage, kv_bytes_per_token, state_bytes
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.weights.gguf import GGUFFile

if TYPE_CHECKING:
    from twostroke.models.model import Source


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is stored, the program where it is known, and the reasons why the model cannot run (none: it can).

    `warnings` are what running it would warn of.

    `bits` has the bits a weight of each of the program's tensors.
    """

    stored: StoredModel
    program: Program | None
    bits: Mapping[str, float]
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises ModelFileError and UnsupportedModelError only where the files' headers cannot be read."""
        stored = StoredModel.read(path)
        warnings: list[str] = []
        reasons = (_reason(partial(_check_loads, path, warnings)), _reason(stored.tokenizer))
        found = tuple(reason.removeprefix(f"{path}: ") for reason in reasons if reason is not None)
        program = _directory_program(path) if path.is_dir() else _file_program(path)
        return cls(stored, *program, found, tuple(warnings))

    @property
    def parameters(self) -> int:
        """Values in all tensors."""
        return sum(tensor.num_values for tensor in self.stored.tensors)

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes of one token's keys and values in 16 bits; None where the program is not known."""
        return None if self.program is None else kv_bytes_per_token(self.program, Storage({}))

    @property
    def state_bytes(self) -> float | None:
        """Bytes of a request's recurrent states in 32 bits; None where the program is not known."""
        return None if self.program is None else state_bytes(self.program, Storage({}))

    def report_program(self, tokens: int, fused: bool) -> ProgramReport:
        """The program's costs with the model's own weight types.

        Raises UnsupportedModelError where there is no program, ContextLengthError where `tokens` and one more exceed
        the context.
        """
        if self.program is None:
            raise UnsupportedModelError(f"{self.stored.path}: no program: {'; '.join(self.reasons)}")
        context = self.stored.context_length
        if context is not None and tokens >= context:
            raise ContextLengthError(f"--tokens {tokens} and a decode step exceed the context of {context} tokens")
        return report_program(fuse(self.program) if fused else self.program, Storage(self.bits), tokens)


def _reason(check: Callable[[], object]) -> str | None:
    try:
        check()
    except TwostrokeError as error:
        return str(error)
    return None


def _check_loads(path: Path, warnings: list[str]) -> None:
    """Adds what loading would warn of."""
    model = load_model(path)
    model.source.close()
    warnings += model.warnings
    refuse_unsupported(fuse(model.program))


def _bits(weights: "Source") -> dict[str, float]:
    return {name: info.type.bits_per_weight for name, info in weights.tensors.items()}


def _directory_program(path: Path) -> tuple[Program | None, Mapping[str, float]]:
    """The program of a directory and its weights' bits; None where it cannot run."""
    try:
        model = load_model(path)
    except TwostrokeError:
        return None, {}
    with closing(model.source):
        return model.program, _bits(model.source)


def _file_program(path: Path) -> tuple[Program | None, Mapping[str, float]]:
    """The program that a file's metadata describe and its weights' bits; None where they describe none, or the file
    lacks one of its tensors."""
    with closing(GGUFFile.open(path)) as file:
        try:
            family_of(architecture(file.metadata))
            config = config_from_gguf(file.metadata, {name: info.shape for name, info in file.tensors.items()})
            program, weights = build_program(config), with_parts(file, config)
        except TwostrokeError:
            return None, {}
        infos = weights.tensors
        complete = all(name in infos and infos[name].shape == each.shape for name, each in program.weights.items())
        return (program, _bits(weights)) if complete else (None, {})
