"""The page: complete, alone, escaped, and the plan's page from the same template."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from twostroke.explain.charts import cache_growth
from twostroke.explain.page import page_of
from twostroke.explain.planned import planned_story
from twostroke.explain.story import Story
from twostroke.explain.svg import LEFT, RIGHT, WIDTH
from twostroke.roofline.planned_model import find_planned
from twostroke.roofline.planner import Plan, Scenario, make_plan
from twostroke.roofline.target import custom_target, find_target

_VOID = ("meta", "br", "input", "link")


class Parsed(HTMLParser):
    """Elements that are open, ids seen, and text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def parsed(page: str) -> Parsed:
    found = Parsed()
    found.feed(page)
    assert found.open == []
    assert len(set(found.ids)) == len(found.ids)
    return found


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(find_planned("llama-3.1-70b"), find_target("H100 SXM"), Scenario(prompt=512, answer=64))


def test_the_page_of_a_run_is_whole_and_alone(story: Story) -> None:
    page = page_of(story)
    found = parsed(page)
    assert page.startswith("<!doctype html>")
    assert not re.findall(r"(?:src|href)\s*=|url\(|@import|https?://", page.partition('id="what-if-data"')[0])
    assert len(page) < 500_000
    for part in ("prompt as tokens", "Prefill", "Decode", "KV cache as it grows", "Memory", "What if?"):
        assert part in found.text
    assert page.count("<svg") >= 8
    assert "measured" in found.text and "counted" in found.text and "predicted" in found.text


def test_what_a_user_wrote_is_text(story: Story) -> None:
    """The prompt has an element and the end of a script."""
    page = page_of(story)
    assert page.count("</script>") == 2
    assert "<b>in" not in page


def test_the_scripts_find_all_that_they_look_for(story: Story) -> None:
    page = page_of(story)
    ids = set(parsed(page).ids)
    script = page.rpartition("<script>")[2]
    wanted = set(re.findall(r'(?:byId|fill)\("([\w-]+)"', script))
    assert len(wanted) > 15
    assert wanted - {"split-", "share-"} <= ids
    assert {f"{kind}-{part}" for kind in ("split", "share") for part in ("weights", "kv", "compute", "engine")} <= ids


def test_the_data_in_the_page_is_the_story_s(story: Story) -> None:
    text = page_of(story).partition('id="what-if-data">')[2].partition("</script>")[0]
    assert json.loads(text) == json.loads(json.dumps(story.what_if))


def test_a_prompt_without_words_and_an_answer_without_text(story: Story) -> None:
    """Every section is there, under its number."""
    page = page_of(replace(story, vectors=None, answer=" \n"))
    text = parsed(page).text
    assert re.findall(r"<h2>(\d)\. ", page) == list("1234567")
    assert "none to compare" in text and "No text: 9 tokens, then the end (length)." in text


@pytest.mark.parametrize(("count", "left_out"), [(2000, ""), (2001, "1"), (130_000, "128,000")])
def test_a_page_stays_small(story: Story, count: int, left_out: str) -> None:
    """Also of the longest prompt and answer, when every token is a long one."""
    wide = replace(story.prompt[-1], text=" " * 128)
    decoded, other = story.steps[-1], (wide, 0.1)
    choices = [replace(story.choices[0], token=wide, alternatives=(other,) * 5)] * 512
    steps = (story.steps[0], *(decoded,) * 511)
    page = page_of(replace(story, prompt=(wide,) * count, choices=tuple(choices), steps=steps))
    assert page.count('<li class="token') == min(count, 2000)
    assert re.findall(r"… ([\d,]+) more …", page) == ([left_out] if left_out else [])
    assert len(page.encode()) < 2_000_000


def test_text_of_any_direction_keeps_its_figures(story: Story) -> None:
    """Isolated, so that a number is not drawn on the other side of a word that runs from right to left."""
    assert story.vectors is not None
    page = page_of(story)
    nearest = sum(len(word.nearest) for word in story.vectors.words)
    assert page.count("<bdi") == nearest + len(story.vectors.words) + sum(
        token.id != choice.token.id for choice in story.choices for token, _ in choice.alternatives
    )
    assert '<p class="answer" dir="auto">' in page


@pytest.mark.parametrize(
    ("count", "ticks"), [(1, "0 1"), (3, "0 1 2 3"), (46, "0 10 20 30 40"), (512, "0 100 200 300 400 500")]
)
def test_steps_are_whole_and_many_of_them_touch(story: Story, count: int, ticks: str) -> None:
    svg = cache_growth([story.steps[-1]] * count)
    assert " ".join(re.findall(r'text-anchor="middle">(\d+)<', svg)) == ticks
    assert ("crispEdges" in svg) == (count > 150)
    width = re.findall(r'<rect class="\w+" x="[\d.]+" y="[\d.]+" width="([\d.]+)"', svg)[0]
    pitch = (WIDTH - LEFT - RIGHT) / count
    assert float(width) == pytest.approx(1.04 * pitch if count > 150 else 0.8 * pitch, abs=0.01)


def test_the_page_of_a_plan(plan: Plan) -> None:
    story = planned_story(plan)
    found = parsed(page_of(story))
    assert plan.prefill is not None and story.prefill is not None
    assert story.prefill.seconds == plan.prefill.total
    assert story.prefill.flops == pytest.approx(plan.prefill.work.flops)
    assert story.decode.seconds == plan.decode.total
    assert story.memory.total_bytes == pytest.approx(plan.memory.total_bytes)
    assert "does not fit" in found.text and "would" in found.text
    assert "as tokens" not in found.text and "1." not in re.findall(r"\d\. ", found.text.partition("What if?")[0])
    assert [step.kept_tokens for step in story.steps] == [512, *range(513, 576)]
    assert story.steps[-1].kept_bytes == 575 * 80 * 2 * 8 * 128 * 2


def test_a_plan_for_hardware_without_published_arithmetic() -> None:
    target = custom_target({"bandwidth_gb_s": 100.0})
    story = planned_story(make_plan(find_planned("qwen3-0.6b"), target, Scenario(prompt=64, answer=8)))
    assert (story.prefill, story.crossover) == (None, None)
    assert "not published" in parsed(page_of(story)).text


def test_a_plan_of_one_token() -> None:
    story = planned_story(make_plan(find_planned("qwen3-0.6b"), find_target("RTX 4090"), Scenario(prompt=1, answer=1)))
    parsed(page_of(story))
