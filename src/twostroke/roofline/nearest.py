"""Names as people type them: their common form, and those nearest to one that nothing has. Owns no catalogue."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_NUM_SUGGESTED = 4


def folded(name: str) -> str:
    """Letters and digits only, in lower case: "RTX 4090" and "rtx-4090" are the same name. "+" counts as "plus"."""
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("+", "plus"))


def suggestion(name: str, known: Iterable[str]) -> str:
    """The names nearest to one that is not known, as the end of a message: "; nearest: A, B", or empty."""
    by_form = {folded(each): each for each in known}
    found = get_close_matches(folded(name), by_form, n=_NUM_SUGGESTED, cutoff=0.5)
    return f"; nearest: {', '.join(by_form[form] for form in found)}" if found else ""
