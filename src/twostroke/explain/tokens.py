"""A prompt's tokens, and which of them the chat template wrote. Owns finding the user's own text in a rendered chat."""

from collections.abc import Sequence

from twostroke.explain.story import Token
from twostroke.text.tokenizer import Tokenizer


def token_of(tokenizer: Tokenizer, token_id: int, *, is_template: bool = False) -> Token:
    """The token with its text; bytes that are no whole character as \\xNN."""
    text = tokenizer.token_bytes(token_id).decode("utf-8", errors="backslashreplace")
    return Token(token_id, text, is_template)


def prompt_tokens(tokenizer: Tokenizer, ids: Sequence[int], text: str | None) -> tuple[Token, ...]:
    """The ids as tokens. `text` is what the user wrote; None where no template is around it. Those that have no byte
    of its last occurrence are the template's; where a template changed the text, only control tokens are."""
    pieces = [tokenizer.token_bytes(token_id) for token_id in ids]
    span = None if text is None else _span(b"".join(pieces), text)
    tokens, at = [], 0
    for token_id, piece in zip(ids, pieces, strict=True):
        end = at + len(piece)
        if text is None or span is None:
            is_template = tokenizer.is_special(token_id)
        else:
            is_template = end <= span[0] or at >= span[1]
        tokens.append(token_of(tokenizer, token_id, is_template=is_template))
        at = end
    return tuple(tokens)


def _span(whole: bytes, text: str) -> tuple[int, int] | None:
    """Where the last occurrence of a text, or of it without space around it, begins and ends."""
    for form in (text, text.strip()):
        wanted = form.encode()
        if wanted and (start := whole.rfind(wanted)) >= 0:
            return start, start + len(wanted)
    return None
