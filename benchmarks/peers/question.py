"""Question: what every engine is timed at. Owns the lengths and which stroke counts, not how an engine is run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """`batch` requests together. Where `gen_tokens` is 0 their prompts are timed, otherwise their answers.

    Of an answer's speed `prompt_tokens` is what lies in the KV cache when its first token is computed; 0 is none.
    """

    prompt_tokens: int
    gen_tokens: int
    batch: int = 1

    @property
    def name(self) -> str:
        if not self.gen_tokens:
            return f"prefill {self.prompt_tokens}"
        return f"decode {self.gen_tokens}" if self.batch == 1 else f"decode {self.gen_tokens} x {self.batch}"


def questions(prefill: int, decode: int, batch: int) -> list[Question]:
    """Three: a prompt, an answer after nothing, and `batch` answers together after prompts of 64. 0 leaves one out."""
    found = [Question(prefill, 0)] if prefill else []
    if decode:
        found.append(Question(0, decode))
    if batch:
        found.append(Question(64, 64, batch))
    return found
