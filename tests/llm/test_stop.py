"""Stop strings: exact, whatever the pieces."""

import itertools

import pytest

from twostroke.llm.stop import StopStrings

CASES = [
    (("DEF",), "ABCDEFGH", "ABC", True),
    (("DEF",), "ABCDEG", "ABCDEG", False),
    (("abab",), "aababab", "a", True),
    (("b", "abc"), "xabc", "xa", True),  # "b" is complete first
    (("abc", "c"), "xabc", "x", True),  # both complete at once: the longest
    (("\n\n",), "a\n\nb", "a", True),
    (("wordé",), "a wordé", "a ", True),
    ((), "anything", "anything", False),
    (("x", "xyz"), "a", "a", False),
]


def cut(text: str, at: tuple[int, ...]) -> list[str]:
    borders = [0, *at, len(text)]
    return [text[a:b] for a, b in itertools.pairwise(borders)]


@pytest.mark.parametrize(("stops", "text", "expected", "is_stopped"), CASES)
def test_every_way_of_cutting_gives_the_same(
    stops: tuple[str, ...], text: str, expected: str, is_stopped: bool
) -> None:
    for count in range(len(text)):
        for borders in itertools.combinations(range(1, len(text)), count):
            matcher, passed = StopStrings(stops), ""
            for piece in cut(text, borders):
                passed += matcher.push(piece)
                assert expected.startswith(passed)  # nothing of a stop string, ever
                if matcher.is_stopped:
                    break
            assert (passed + matcher.flush(), matcher.is_stopped) == (expected, is_stopped)


@pytest.mark.parametrize(("stops", "text", "expected", "is_stopped"), CASES)
def test_a_stop_that_is_included_is_the_last_of_the_text(
    stops: tuple[str, ...], text: str, expected: str, is_stopped: bool
) -> None:
    for borders in itertools.combinations(range(1, len(text)), 2):
        matcher, passed = StopStrings(stops, included=True), ""
        for piece in cut(text, borders):
            if not matcher.is_stopped:
                passed += matcher.push(piece)
        assert passed + matcher.flush() == expected + (matcher.found or "")
        assert matcher.is_stopped == is_stopped == (matcher.found in stops)


def test_text_is_held_only_while_it_may_become_a_stop() -> None:
    matcher = StopStrings(("END",))
    assert [matcher.push(piece) for piece in ("a E", "N", "D!", "x")][:2] == ["a ", ""]
    matcher = StopStrings(("END",))
    assert [matcher.push(piece) for piece in ("a E", "N", "E", "nd")] == ["a ", "", "EN", "End"]
