"""What a page says in sentences. Owns the words; every figure is the story's."""

from collections.abc import Iterator
from dataclasses import dataclass

from twostroke.explain.charts import likeliest
from twostroke.explain.figures import bytes_text, count_text, rate_text, time_text
from twostroke.explain.story import MemoryUse, Story, Stroke

_UNEXPLAINED = (
    "More than half of the time neither roof explains: unpacking weights, starting steps, threads that wait for each"
    " other, or other programs on these cores."
)


@dataclass(frozen=True, slots=True)
class Card:
    """A figure at the top of the page; `tag` says how it came about."""

    title: str
    tag: str
    value: str
    note: str


def heading(story: Story) -> str:
    """The page's title."""
    if story.source == "measured":
        return f"{story.model.name}: what a run did"
    return f"{story.model.name}: what a run on {story.hardware} would do"


def subtitle(story: Story) -> str:
    """The model and the machine in a line."""
    model = story.model
    mean = 8 * model.weight_bytes / model.parameters
    return (
        f"{model.architecture}, {count_text(model.parameters)} parameters in {model.layers} layers, weights"
        f" {model.weights} ({mean:.3g} bits each in the mean), KV cache {model.kv}; on {story.hardware}, with"
        f" {story.engine}."
    )


def warning(story: Story) -> str:
    """What must be known before all else."""
    left, there = story.memory.left_bytes, story.memory.capacity_bytes
    if left is None or there is None or left >= 0:
        return ""
    return f"It does not fit: {bytes_text(-left)} more than the {bytes_text(there)} there are. Times are as if it did."


def cards(story: Story) -> Iterator[Card]:
    """The run in four figures."""
    prefill, decode = story.prefill, story.decode
    if prefill is not None:
        value = f"{time_text(prefill.seconds)} for {_tokens(prefill.tokens)}"
        yield Card("prefill", story.source, value, _standing(prefill))
    if decode.tokens:
        value = f"{time_text(decode.seconds / decode.tokens)} a token"
        yield Card("decode", story.source, value, _standing(decode))
        each = decode.bytes / decode.tokens
        weights, cache = decode.weight_bytes / decode.tokens, decode.kv_bytes / decode.tokens
        note = f"{bytes_text(weights)} weights, {bytes_text(cache)} KV cache"
        yield Card("a decode step moves", "counted", bytes_text(each), note)
    memory = story.memory
    if memory.peak_bytes is None:
        yield Card("memory", "predicted", bytes_text(memory.total_bytes), _left(memory))
    else:
        note = f"{bytes_text(memory.kv_bytes)} of KV cache set aside"
        yield Card("memory at most", "measured", bytes_text(memory.peak_bytes), note)


def timeline_words(story: Story) -> str:
    """Why the picture looks as it does."""
    if story.prefill is None:
        return "The hardware's FLOP/s are not published, so prefill is not predicted; only decode is drawn."
    tokens = _tokens(story.prefill.tokens)
    steps = "at once" if story.prefill.steps == 1 else f"in {story.prefill.steps} steps"
    return (
        f"Prefill takes {tokens} {steps} and gives the first token; decode gives one token a step, since each needs the"
        " one before."
    )


def no_answer(story: Story) -> str:
    """What is said in place of an answer without a letter."""
    return f"No text: {_tokens(len(story.choices))}, then the end ({story.finish_reason})."


def prompt_words(story: Story) -> str:
    """How many tokens, and whose."""
    template = sum(token.is_template for token in story.prompt)
    whose = (
        f", {template} of them (dashed) written by the chat template" if template else ", with no template around them"
    )
    return (
        f"{_tokens(len(story.prompt))}{whose}. The number under a token is its id in a vocabulary of"
        f" {story.model.vocabulary:,}; · is a space, ⏎ a line's end."
    )


def prefill_words(story: Story) -> Iterator[str]:
    """Where prefill stands under the roof and why."""
    found = story.prefill
    if found is None:
        yield "Not predicted: the hardware's FLOP/s are not published."
        return
    yield (
        f"{_tokens(found.tokens)} share {_readings(found.steps)} of the weights: {count_text(found.flops)}FLOP and"
        f" {bytes_text(found.bytes)}, so {found.intensity:,.1f} FLOPs per byte (counted), in"
        f" {time_text(found.seconds)}{_range(found)} ({story.source})."
    )
    ridge = found.ridge
    if ridge is not None and found.roof_flop_s is not None:
        if found.bound == "compute":
            yield (
                f"The roofs here cross at {ridge:,.1f} FLOPs per byte. Prefill is right of that: compute-bound, at"
                f" {rate_text(found.flops / found.seconds, 'FLOP/s')} of"
                f" {rate_text(found.roof_flop_s, 'FLOP/s')}{_share(found)}; narrower weights would hardly help."
            )
        else:
            short = story.crossover is not None and found.tokens < story.crossover
            why = "This prompt is too short to get past that: even its prefill" if short else "Left of that, prefill"
            yield (
                f"The roofs here cross at {ridge:,.1f} FLOPs per byte. {why} is memory-bound, at"
                f" {rate_text(found.bytes / found.seconds, 'B/s')} of"
                f" {rate_text(found.roof_byte_s, 'B/s')}{_share(found)}."
            )
    if _is_unexplained(story, found):
        yield _UNEXPLAINED
    if _is_starting(found):
        yield f"Most of the time is neither bytes nor FLOPs: starting kernels takes {found.starting_share:.0%}."
    yield _crossover(story)


def decode_words(story: Story) -> Iterator[str]:
    """Why decode is as fast as it is."""
    found, is_run = story.decode, story.source == "measured"
    if not found.tokens:
        yield "The answer has one token, which prefill gave: nothing was decoded."
        return
    each, took = found.bytes / found.tokens, "took" if is_run else "would take"
    yield (
        f"Every token reads all weights it needs and its whole KV cache again: {bytes_text(each)} for"
        f" {count_text(found.flops / found.tokens)}FLOP, {found.intensity:,.1f} FLOPs per byte (counted). At the roof"
        f" of {rate_text(found.roof_byte_s, 'B/s')} that is {time_text(each / found.roof_byte_s)}; a token {took}"
        f" {time_text(found.seconds / found.tokens)}{_range(found)} ({story.source})."
    )
    if _is_starting(found):
        yield (
            f"Most of it is neither bytes nor FLOPs: starting kernels takes {found.starting_share:.0%}, and the roof is"
            " far off. More requests at once share the starts; narrower weights hardly help."
        )
    elif found.bound is not None:
        yield f"Decode is {found.bound}-bound{_share(found)}: {_remedy(story, found)}."
        if _is_unexplained(story, found):
            yield _UNEXPLAINED
    if story.model.experts:
        yield (
            f"Which of a layer's {story.model.experts:,} experts a step reads is taken as a uniform choice: bytes of"
            " experts are what is expected."
        )


def cache_note(story: Story) -> str:
    """What a token adds."""
    last = story.steps[-1]
    per_token = bytes_text(story.memory.kv_bytes_per_token)
    whole = f"{last.kept_tokens:,} tokens kept take {bytes_text(last.kept_bytes)}"
    return f"First the prompt, then a token a step: {per_token} a token; {whole}."


def memory_words(story: Story) -> str:
    """What is set aside, what is left, and how long a context would fit."""
    memory = story.memory
    verb = "were set aside before the run (measured)" if story.source == "measured" else "would be needed (predicted)"
    text = (
        f"{bytes_text(memory.total_bytes)} {verb}: weights {bytes_text(memory.weight_bytes)}, KV cache"
        f" {bytes_text(memory.kv_bytes)} for {_tokens(memory.kv_tokens)}, activations"
        f" {bytes_text(memory.activation_bytes)}, and about {bytes_text(memory.overhead_bytes)} for the engine itself"
        f"{' (predicted)' if story.source == 'measured' else ''}."
    )
    if memory.peak_bytes is not None:
        unwritten = ", since what is never written takes none" if memory.peak_bytes < memory.total_bytes else ""
        text += f" The process took {bytes_text(memory.peak_bytes)} at most (measured){unwritten}."
    if memory.left_bytes is None or memory.capacity_bytes is None:
        return text + " How much memory the hardware has is not stated."
    if memory.left_bytes < 0:
        verdict = "a shorter context fits" if memory.max_context else "the model does not fit"
        over, there = bytes_text(-memory.left_bytes), bytes_text(memory.capacity_bytes)
        return f"{text} That is {over} more than the {there} there are: {verdict}.{_longest(story)}"
    return f"{text} {bytes_text(memory.left_bytes)} of {bytes_text(memory.capacity_bytes)} are left.{_longest(story)}"


def surprises(story: Story) -> str:
    """How often the likeliest token was not taken."""
    others = sum(not likeliest(choice) for choice in story.choices)
    if not others:
        return "The likeliest was taken every time."
    return f"{others} of {len(story.choices)} times another than the likeliest was taken."


def _longest(story: Story) -> str:
    found = story.memory.max_context
    if not found:
        return ""
    most = story.model.context
    own = "all that the model was made for" if found == most else f"of {most:,} that it was made for"
    return f" One request could have a context of {found:,} tokens, {own} (predicted)."


def _crossover(story: Story) -> str:
    if story.prefill is None or story.prefill.ridge is None:
        return ""
    if story.crossover is None:
        return "On these roofs no prompt of this model makes prefill compute-bound (predicted)."
    if story.crossover <= 1:
        return "On these roofs prefill is compute-bound from the first token."
    return f"On these roofs prefill of this model is compute-bound from {story.crossover:,} tokens (predicted)."


def _is_starting(stroke: Stroke) -> bool:
    """Whether neither roof is what takes the time."""
    return stroke.starting_share is not None and stroke.starting_share > 0.5


def _is_unexplained(story: Story, stroke: Stroke) -> bool:
    """Whether a measured time is more than twice what both roofs ask for."""
    return story.source == "measured" and stroke.roof_fraction is not None and stroke.roof_fraction < 0.5


def _remedy(story: Story, decode: Stroke) -> str:
    if decode.bound == "compute":
        return "arithmetic is the limit even for one token"
    fewer = "narrower weights, a shorter context, or more requests that share one reading"
    if _is_unexplained(story, decode):
        return f"memory is the nearer roof, so fewer bytes help: {fewer}"
    return f"memory is the limit, and only fewer bytes make it faster: {fewer}"


def _standing(stroke: Stroke) -> str:
    if _is_starting(stroke):
        return f"starting kernels, {stroke.starting_share:.0%} of it"
    return "" if stroke.bound is None else f"{stroke.bound}-bound{_share(stroke)}"


def _share(stroke: Stroke) -> str:
    return "" if stroke.roof_fraction is None else f", {stroke.roof_fraction:.0%} of the roof"


def _range(stroke: Stroke) -> str:
    if stroke.low is None or stroke.high is None:
        return ""
    return f", {time_text(stroke.low)} to {time_text(stroke.high)}"


def _readings(steps: int) -> str:
    return "one reading" if steps == 1 else f"{steps:,} readings"


def _tokens(count: int) -> str:
    return "1 token" if count == 1 else f"{count:,} tokens"


def _left(memory: MemoryUse) -> str:
    left, there = memory.left_bytes, memory.capacity_bytes
    if left is None or there is None:
        return ""
    return f"{bytes_text(abs(left))} {'left' if left >= 0 else 'too much'} of {bytes_text(there)}"
