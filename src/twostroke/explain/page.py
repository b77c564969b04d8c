"""A story as one HTML file that needs nothing else. Owns what goes where; its form is `page.html`'s, its sentences
`words.py`'s, its charts `charts.py`'s, and what its sliders say is evaluated by `evaluate.js`.
"""

import json
from importlib import resources
from typing import Any

from twostroke.explain import charts, words
from twostroke.explain.figures import bytes_text, count_text, rate_text, time_text
from twostroke.explain.story import Story
from twostroke.explain.style import page_style
from twostroke.program.phase import Phase

_FIRST, _LAST = 1500, 500  # tokens of a prompt that are drawn; those between are left out, and the page stays small
_GROUPS = {
    "nvidia-datacenter": "NVIDIA, data centre",
    "nvidia": "NVIDIA",
    "amd-datacenter": "AMD, data centre",
    "amd": "AMD",
    "intel-datacenter": "Intel and others, data centre",
    "intel": "Intel",
    "apple": "Apple",
    "cpu": "CPUs and phones",
}


def page_of(story: Story) -> str:
    """The whole page."""
    from jinja2 import Environment  # only where a page is drawn

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    is_run = story.source == "measured"
    decode_steps = [step for step in story.steps if step.phase is Phase.DECODE]
    return (
        environment.from_string(_file("page.html"))
        .render(
            story=story,
            is_run=is_run,
            heading=words.heading(story),
            subtitle=words.subtitle(story),
            warning=words.warning(story),
            prompt_start=story.prompt[:_FIRST],
            prompt_end=story.prompt[max(_FIRST, len(story.prompt) - _LAST) :],
            num_left_out=max(0, len(story.prompt) - _FIRST - _LAST),
            cards=tuple(words.cards(story)),
            timeline_words=words.timeline_words(story),
            no_answer=words.no_answer(story),
            prompt_words=words.prompt_words(story),
            prefill_words=tuple(filter(None, words.prefill_words(story))),
            decode_words=tuple(words.decode_words(story)),
            times_note=_times_note(story),
            cache_note=words.cache_note(story),
            surprises=words.surprises(story),
            memory_words=words.memory_words(story),
            memory_note="The dashed line is what there is." if charts.shows_limit(story.memory) else "",
            charts=_charts(story),
            decode_steps=decode_steps,
            texts=charts.texts_of(story),
            groups=_machines(story),
            css=page_style(),
            evaluate_js=_file("evaluate.js"),
            page_js=_file("page.js"),
            what_if=json.dumps(story.what_if).replace("<", "\\u003c"),
            **_figures(),
        )
        .lstrip()
    )


def _figures() -> dict[str, Any]:
    return {
        "bytes": bytes_text,
        "count": count_text,
        "rate": rate_text,
        "time": time_text,
        "visible": charts.visible,
        "strip": charts.strip,
        "likeliest": charts.likeliest,
    }


def _charts(story: Story) -> dict[str, str]:
    decode_steps = [step for step in story.steps if step.phase is Phase.DECODE]
    texts = charts.texts_of(story)
    drawn = {
        "timeline": charts.timeline(story.steps, story.source),
        "cache": charts.cache_growth(story.steps),
        "memory": charts.memory_bar(story.memory),
    }
    if story.prefill is not None:
        drawn["roofline"] = charts.roofline(story.prefill, story.decode)
        drawn["layer_flops"] = charts.layers(story.prefill.by_layer, "flops")
        drawn["layer_bytes"] = charts.layers(story.prefill.by_layer, "bytes")
    if decode_steps:
        drawn["token_times"] = charts.token_times(decode_steps, story.decode, texts)
        drawn["token_bytes"] = charts.token_bytes(decode_steps, texts)
    return drawn


def _times_note(story: Story) -> str:
    shown = len(story.steps) - 1
    text = "The line is the least time that the token's bytes allow at the roof."
    if story.source == "predicted" and story.what_if and shown == 128:
        text += " 128 tokens of the answer, evenly spread."
    return text


def _machines(story: Story) -> list[tuple[str, list[tuple[int, str]]]]:
    """The choice of machines: the story's own, then the catalogue's by kind, with their places in the data."""
    machines = story.what_if["machines"]
    groups: dict[str, list[tuple[int, str]]] = {"this page": [(0, machines[0]["name"])]}
    for index, machine in enumerate(machines[1:], 1):
        groups.setdefault(_GROUPS.get(machine["group"], "others"), []).append((index, machine["name"]))
    return list(groups.items())


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")
