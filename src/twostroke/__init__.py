"""Twostroke: an LLM inference engine that treats prefill and decode as what they are."""

__version__ = "0.1.0"
