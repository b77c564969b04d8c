"""Families and their table: what each program is made of, and architectures that none builds."""

from dataclasses import replace

import pytest

from twostroke.errors import UnsupportedModelError
from twostroke.models.config import LatentSizes, ModelConfig
from twostroke.models.hf_families import HF_FAMILIES
from twostroke.models.registry import FAMILIES, HF_ARCHITECTURES, build_program
from twostroke.program.ops import Linear

DECODERS = sorted(set(FAMILIES) - {"bert"})
CONFIG = ModelConfig(
    architecture="llama",
    name="tiny",
    num_layers=3,
    dim=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    ffn_dim=128,
    vocab_size=320,
    context_length=64,
    norm_eps=1e-5,
    rope_dim=16,
    num_experts=4,
    experts_per_token=2,
    expert_ffn_dim=32,
    windows=(16, None, 16),
    latent=LatentSizes(query_rank=None, rank=24, content_dim=12, rope_dim=16, value_dim=8),
)


@pytest.mark.parametrize(
    ("config", "biased"),
    [
        (CONFIG, set()),
        (replace(CONFIG, qkv_bias=True), {"attn_q", "attn_k", "attn_v"}),
        (replace(CONFIG, attn_output_bias=True), {"attn_output"}),
        (replace(CONFIG, num_experts=0, ffn_bias=True), {"ffn_gate", "ffn_up", "ffn_down"}),
    ],
)
def test_biases(config: ModelConfig, biased: set[str]) -> None:
    names = {name.split(".")[2] for name in build_program(config).weights if name.endswith(".bias")}
    assert names == biased


def test_architectures_of_directories_alone_are_those_with_a_record() -> None:
    assert {family.architecture for family in HF_FAMILIES.values()} == HF_ARCHITECTURES


@pytest.mark.parametrize("architecture", DECODERS)
def test_a_tied_head_is_the_table(architecture: str) -> None:
    config = replace(CONFIG, architecture=architecture)
    for tied, name in ((False, "output.weight"), (True, "token_embd.weight")):
        head = build_program(replace(config, tied_head=tied)).ops[-1]
        assert isinstance(head, Linear)
        assert head.matrices[0].name == name


@pytest.mark.parametrize("architecture", DECODERS)
def test_outputs(architecture: str) -> None:
    config = replace(CONFIG, architecture=architecture)
    both = build_program(config, ("hidden", "logits"))
    assert {name: both.values[value].dim for name, value in both.outputs.items()} == {"hidden": 64, "logits": 320}
    assert "output.weight" not in build_program(config, ("hidden",)).weights


@pytest.mark.parametrize("outputs", [(), ("logits", "attention")])
def test_unknown_outputs_are_refused(outputs: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="outputs are among"):
        build_program(CONFIG, outputs)


def test_an_unknown_architecture_is_named_with_those_there_are() -> None:
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*gptneox, granite, llama"):
        build_program(replace(CONFIG, architecture="mamba"))
