"""A model file opened for looking at: as much of it as can be understood, and why it cannot run where it cannot.

Owns the order of trying; each check is the one that running the model makes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from twostroke.cli.program_report import ProgramReport, report_program
from twostroke.errors import ContextLengthError, TwostrokeError, UnsupportedModelError
from twostroke.models.gguf_config import config_from_gguf
from twostroke.models.load import Source, load_model, with_parts
from twostroke.models.registry import build_program, family_of
from twostroke.program.cost import Storage, kv_bytes_per_token
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class Inspection:
    """An open file, its program where its architecture is known, and the reasons why it cannot run (none: it can)."""

    source: GGUFFile
    weights: Source  # the program's, parts of the file's tensors among them
    program: Program | None
    reasons: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises ModelFileError and UnsupportedModelError only where the file's header cannot be read."""
        source = GGUFFile.open(path)
        reasons = (_reason(lambda: load_model(path)), _reason(lambda: Tokenizer.from_gguf(source.metadata)))
        found = tuple(reason.removeprefix(f"{path}: ") for reason in reasons if reason is not None)
        return cls(source, *_program(source), found)

    @property
    def architecture(self) -> str | None:
        """`general.architecture`, as the file has it."""
        value = self.source.metadata.get("general.architecture")
        return value if isinstance(value, str) else None

    @property
    def parameters(self) -> int:
        """Weights in all tensors."""
        return sum(info.num_values for info in self.source.tensors.values())

    @property
    def context_length(self) -> int | None:
        """The longest context the file states, in tokens."""
        value = self.source.metadata.get(f"{self.architecture}.context_length")
        return value if isinstance(value, int) else None

    @property
    def kv_bytes_per_token(self) -> float | None:
        """Bytes of one token's keys and values in 16 bits; None where the program is not known."""
        return None if self.program is None else kv_bytes_per_token(self.program, Storage({}))

    def report_program(self, tokens: int, fused: bool) -> ProgramReport:
        """The program's costs with the file's own weight types.

        Raises UnsupportedModelError where there is no program, ContextLengthError where `tokens` and one more exceed
        the context.
        """
        if self.program is None:
            raise UnsupportedModelError(f"{self.source.path}: no program: {'; '.join(self.reasons)}")
        if self.context_length is not None and tokens >= self.context_length:
            raise ContextLengthError(
                f"--tokens {tokens} and a decode step exceed the context of {self.context_length} tokens"
            )
        bits = {name: info.type.bits_per_weight for name, info in self.weights.tensors.items()}
        return report_program(fuse(self.program) if fused else self.program, Storage(bits), tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.source.close()


def _reason(check: Callable[[], object]) -> str | None:
    try:
        check()
    except TwostrokeError as error:
        return str(error)
    return None


def _program(source: GGUFFile) -> tuple[Source, Program | None]:
    """The program that the metadata describe, and its weights; None where they describe none, or the file lacks one."""
    try:
        family_of(str(source.metadata.get("general.architecture")))
        config = config_from_gguf(source.metadata, {name: info.shape for name, info in source.tensors.items()})
        program, weights = build_program(config), with_parts(source, config)
    except TwostrokeError:
        return source, None
    infos = weights.tensors
    complete = all(name in infos and infos[name].shape == each.shape for name, each in program.weights.items())
    return weights, program if complete else None
