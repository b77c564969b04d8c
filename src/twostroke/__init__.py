"""Twostroke: an LLM inference engine that treats prefill and decode as what they are."""

import typing

if typing.TYPE_CHECKING:
    from twostroke.llm.config import LLMConfig, SamplingParams
    from twostroke.llm.llm import LLM
    from twostroke.llm.results import Completion, Score

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "LLMConfig", "SamplingParams", "Score"]


def __getattr__(name: str) -> typing.Any:
    """Imports a public name when it is first used: `import twostroke` alone stays cheap."""
    from importlib import import_module

    modules = {"LLM": "llm", "LLMConfig": "config", "SamplingParams": "config", "Completion": "results"}
    modules["Score"] = "results"
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"twostroke.llm.{modules[name]}"), name)
