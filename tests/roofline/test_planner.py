"""Predictions: exact where arithmetic decides, within the roofs over the catalogue, and right about what changes."""

from dataclasses import replace

import pytest

from twostroke.errors import ConfigError, ContextLengthError
from twostroke.roofline.efficiency import WeightMix, find_efficiency, load_classes
from twostroke.roofline.hardware_catalogue import load_hardware
from twostroke.roofline.memory_sum import token_bytes
from twostroke.roofline.model_catalogue import load_models
from twostroke.roofline.plan_fields import plan_fields
from twostroke.roofline.planned_model import PlannedModel, find_planned, of_catalogue
from twostroke.roofline.planner import Plan, Scenario, again, make_plan
from twostroke.roofline.step_time import arithmetic_peak
from twostroke.roofline.target import custom_target, find_target, target_of

GB = 1e9


def plan(model: str, hardware: str, weights: str | None = None, **scenario: object) -> Plan:
    return make_plan(find_planned(model, weights), find_target(hardware), Scenario(**scenario))  # type: ignore[arg-type]


def runnable() -> list[PlannedModel]:
    return [of_catalogue(model) for model in load_models().values() if not model.config().is_encoder]


def test_qwen3_4b_in_bf16_moves_237_gigabytes_a_second_at_the_speed_that_was_published() -> None:
    """236 to 237 GB/s were published for 29.5 tok/s: exact are the bytes, of all weights, the norms in 32 bits, and
    one row of the embedding; keys and values of these 82 tokens make 0.4 GB/s more, and both are 237 in whole GB/s."""
    work = plan("qwen3-4b", "dgx spark", prompt=18, answer=128).decode.work
    assert work.weight_bytes == 2 * (4_022_468_096 + 196_096 + 2560)
    assert work.kv_bytes == 147_456 * 84  # 83 read and one written
    assert round(work.weight_bytes * 29.5 / GB, 1) == 237.3
    assert int(work.read_bytes * 29.5 / GB) == 237


def test_no_share_of_a_roof_is_above_1() -> None:
    for name in load_classes():
        engine, _, hardware = name.partition("/")
        for kind in ("float", "k_quant", "quantised", "mixture"):
            mix = WeightMix(kind, {4.5: 3.0, 8.5: 1.0}, {4.5: 1.0})
            found = find_efficiency(engine, hardware, mix)
            assert min(found.factors[:3]) >= 0, name
            *shares, _, _ = found.factors[3:]
            assert min(factor for factor in shares if factor) >= 1, name
            assert sum(not factor for factor in shares) == (not found.expanded), name
            assert found.overlap >= 1, name


def test_types_count_by_their_share_of_the_time() -> None:
    """Three parts of Q4_K and one of Q8_0; a width that was not timed counts as the nearest that was."""
    found = {
        width: find_efficiency("twostroke", "cpu", WeightMix("k_quant", {width: 1.0}, {4.5: 1.0})).generated
        for width in (4.5, 8.5, 4.6)
    }
    both = find_efficiency("twostroke", "cpu", WeightMix("k_quant", {4.5: 3.0, 8.5: 1.0}, {4.5: 1.0}))
    assert both.generated == pytest.approx(4 / (3 / found[4.5] + 1 / found[8.5]))
    assert found[4.6] == found[4.5] != found[8.5]


def test_a_model_s_mix_counts_the_output_for_generated_rows_only() -> None:
    mix = find_planned("llama-3.1-8b", "q4_k_m").weight_mix
    assert sum(mix.generated.values()) - sum(mix.prompt.values()) == 128256 * 4096


def test_no_prediction_is_above_the_nominal_roofs() -> None:
    """A model on every device, every model on a device."""
    mixture, phone = find_planned("gpt-oss-20b"), find_target("raspberry pi 5")
    pairs = [(mixture, target_of(device)) for device in load_hardware().values()]
    pairs += [(model, phone) for model in runnable()]
    for model, target in pairs:
        found = make_plan(model, target, Scenario(prompt=600, answer=8, batch=4))
        for stroke in filter(None, (found.prefill, found.decode)):
            name = f"{model.name} on {target.name}"
            assert stroke.work.read_bytes <= 1.0001 * target.spec.bytes_per_s_at(1) * stroke.low, name
            assert stroke.work.flops <= 1.0001 * stroke.low * arithmetic_peak(target.spec, "8bit"), name
            assert stroke.low <= stroke.total <= stroke.high, name


def test_decode_is_bound_by_memory_and_prefill_by_arithmetic() -> None:
    found = plan("llama-3.1-8b", "rtx 4090", prompt=2048)
    assert found.prefill is not None
    assert (found.prefill.seconds.bound, found.decode.seconds.bound) == ("compute", "memory")
    assert found.ridge_point is not None
    assert found.decode.work.intensity < found.ridge_point < found.prefill.work.intensity


def test_narrower_weights_batches_and_prefix_hits_change_what_they_should() -> None:
    wide = plan("llama-3.1-8b", "rtx 4090", prompt=2048)
    narrow, batch, cached = again(wide, weights="q4_k_m"), again(wide, batch=8), again(wide, cached=1024)
    assert 2.2 < wide.tpot_s / narrow.tpot_s < 16 / 4.8
    assert wide.tok_s > batch.tok_s > wide.tok_s / 2
    assert batch.total_tok_s > 4 * wide.total_tok_s
    assert wide.ttft_s is not None and cached.ttft_s is not None
    assert 0.45 < cached.ttft_s / wide.ttft_s < 0.6
    assert cached.tpot_s == wide.tpot_s


def test_speculation_gives_what_is_accepted() -> None:
    plain = plan("llama-3.1-70b", "h100 sxm", "q4_k_m")
    guessed = again(plain, drafted=4, accepted=0.7)
    assert guessed.scenario.tokens_a_step == pytest.approx(sum(0.7**i for i in range(5)))
    assert 1.5 < guessed.tok_s / plain.tok_s < guessed.scenario.tokens_a_step


def test_a_batch_of_a_mixture_reads_the_expected_union_of_experts() -> None:
    alone = plan("qwen3-30b-a3b", "h100 sxm").decode.work
    together = plan("qwen3-30b-a3b", "h100 sxm", batch=16).decode.work
    share = 1 - (1 - 8 / 128) ** 16
    assert together.expert_bytes / alone.expert_bytes == pytest.approx(share / (8 / 128))


# --- memory that other planners got wrong -----------------------------------------------------------------------------


def test_a_recurrent_state_does_not_grow() -> None:
    short, long = (plan("qwen3.5-27b", "a100 80gb", prompt=prompt).memory for prompt in (512, 8192))
    assert short.state_bytes == long.state_bytes > 0
    assert long.kv_bytes > 5 * short.kv_bytes


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama-3-8b", 131072),
        ("llama-3-70b", 327680),
        ("mixtral-8x7b", 131072),
        ("qwen1.5-32b", 262144),
        ("yi-1.5-34b", 245760),
        ("qwen2.5-0.5b", 12288),
        ("qwen2.5-1.5b", 28672),
        ("qwen3-4b", 147456),
        ("qwen3-32b", 262144),
        ("deepseek-v3", 70272),
        ("deepseek-r1", 70272),
        ("gpt2-xl", 307200),
        ("qwen3.6-27b", 65536),  # 16 of 64 layers keep keys and values; a source that said half forgot their 2 bytes
    ],
)
def test_bytes_of_a_token_are_those_published(model: str, expected: int) -> None:
    assert token_bytes(find_planned(model), "f16") == expected


def test_bytes_of_a_token_in_8_bits_are_those_published() -> None:
    assert token_bytes(find_planned("qwen2.5-0.5b"), "q8_0") == 6528


@pytest.mark.parametrize(
    ("model", "hardware", "weights", "fits"),
    [
        ("llama-3-8b", "rtx 4080", "f16", False),
        ("llama-3-8b", "apple m1 7c 8gb", "q4_k_m", False),
        ("llama-3-8b", "rtx 3070", "q4_k_m", True),
        ("llama-3-70b", "rtx 4090", "q4_k_m", False),
        ("llama-3-70b", "a100 sxm 80gb", "q4_k_m", True),
    ],
)
def test_fits_as_was_reported_at_8192_tokens(model: str, hardware: str, weights: str, fits: bool) -> None:
    assert plan(model, hardware, weights, prompt=1, answer=8191).memory.fits is fits


# --- what is refused --------------------------------------------------------------------------------------------------


def test_nonsense_is_refused_by_name() -> None:
    with pytest.raises(ContextLengthError, match="exceed its context of 8192"):
        plan("llama-3-8b", "rtx 4090", prompt=8000, answer=1000)
    with pytest.raises(ConfigError, match=r"no engine 'lama'.*llama\.cpp"):
        plan("llama-3-8b", "rtx 4090", engine="lama")
    for wrong in ({"batch": 0}, {"kv": "f8"}, {"prompt": 10, "cached": 10}):
        with pytest.raises(ConfigError):
            Scenario(**wrong)  # type: ignore[arg-type]


def test_hardware_of_ones_own_and_without_flops() -> None:
    target = custom_target({"bandwidth_gb_s": 100, "memory_gib": 8})
    found = make_plan(find_planned("llama-3.1-8b", "q4_k_m"), target, Scenario())
    assert (found.prefill, found.ridge_point) == (None, None)
    assert found.decode.total > found.decode.work.read_bytes / 100e9
    with pytest.raises(ConfigError, match="bandwith"):
        custom_target({"bandwith": 1})


KEYS = {
    "": "model hardware context batch weights kv memory prefill decode ridge_point inputs",
    "memory": "weight_bytes kv_bytes kv_bytes_per_token state_bytes activation_bytes overhead_bytes total_bytes"
    " capacity_bytes fits max_context max_batch",
    "prefill": "seconds seconds_low seconds_high tok_s flops bytes bound intensity",
    "decode": "tpot_s tpot_s_low tpot_s_high tok_s total_tok_s weight_bytes kv_bytes bound intensity",
}


@pytest.mark.parametrize("part", KEYS)
def test_json_has_the_keys_of_the_contract(part: str) -> None:
    fields = plan_fields(plan("llama-3.1-8b", "rtx 4090", "q4_k_m"))
    assert " ".join(fields[part] if part else fields) == KEYS[part]
    assert all(set(one) == {"value", "source"} and one["source"] for one in fields["inputs"].values())


def test_where_memory_was_slower_and_faster_before_a_plan_counts_on_the_latest_and_its_range_holds_all() -> None:
    model, steady = find_planned("llama-3.1-8b", "q4_k_m"), custom_target({"bandwidth_gb_s": 40, "tflops": 10})
    shared = replace(steady, spec=replace(steady.spec, memory_span=(0.75, 1.5)))
    slow, fast = (custom_target({"bandwidth_gb_s": 40 * factor, "tflops": 10}) for factor in (0.75, 1.5))
    found, usual = (make_plan(model, target, Scenario()).decode for target in (shared, steady))
    assert found.total == usual.total
    assert found.high == pytest.approx(make_plan(model, slow, Scenario()).decode.high)
    assert found.low == pytest.approx(make_plan(model, fast, Scenario()).decode.low)
    assert found.low < usual.low < usual.high < found.high
