"""What a prompt becomes for a model: the rendered text and its token ids. Owns the table; text and ids are `text`'s."""

from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.cli.figures import printable
from twostroke.cli.stored_model import StoredModel
from twostroke.text.chat_encoder import ChatEncoder
from twostroke.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class PromptReport:
    """`tokens` has each id with the text it stands for; bytes that are no whole character are written \\xNN."""

    text: str
    tokens: tuple[tuple[int, str], ...]

    def fields(self) -> dict[str, object]:
        """For JSON."""
        tokens = [{"id": token_id, "text": text} for token_id, text in self.tokens]
        return {"text": self.text, "ids": [token_id for token_id, _ in self.tokens], "tokens": tokens}

    def lines(self) -> Iterator[str]:
        """The text as it is, then a token a line."""
        yield from (printable(line) for line in self.text.splitlines())
        yield ""
        yield from (f"{token_id:>8}  '{printable(text)}'" for token_id, text in self.tokens)


def report_prompt(model: StoredModel, prompt: str, system: str | None, raw: bool) -> PromptReport:
    """A user's message as the chat template writes it, after an optional system message; as it is where `raw`.

    Raises ChatTemplateError where a template is needed and missing, and what the tokenizer's making raises.
    """
    tokenizer = model.tokenizer()
    if raw:
        text, ids = prompt, tokenizer.encode(prompt)
    else:
        messages = [{"role": "user", "content": prompt}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        chat = ChatEncoder(model.template(), tokenizer).encode(messages)
        text, ids = chat.text, chat.ids
    return PromptReport(text, tuple((token_id, _token_text(tokenizer, token_id)) for token_id in ids))


def _token_text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", errors="backslashreplace")
