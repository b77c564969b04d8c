"""Every error a user can cause. Owns the names and the one-line messages' form; raises nothing itself.

The command line prints `str(error)` on one line and exits with 1; the Python API raises the class. A message names
the thing (the file, tensor, key, option) and gives both numbers where a limit was passed.
"""


def in_words(error: BaseException) -> str:
    """What went wrong: of the system's errors neither the number nor the file, which the message names itself."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class TwostrokeError(Exception):
    """Root of all errors a user can cause. The message is one line."""


class ModelNotFoundError(TwostrokeError):
    """No alias, file, directory or catalogue entry of that name."""


class HardwareNotFoundError(TwostrokeError):
    """No catalogue entry of that name, or none with the memory asked for; the message has the nearest."""


class ModelFileError(TwostrokeError):
    """A model file is damaged, cut short or malformed; the message names file and field."""


class UnsupportedModelError(TwostrokeError):
    """Architecture, tensor type, RoPE scaling or tokenizer kind that is known or unknown but not supported; named."""


class ModelOutputError(TwostrokeError):
    """The model's logits are not finite: its weights are damaged, or it was not made to run at this precision."""


class ConstraintError(TwostrokeError):
    """A request's constraint (a grammar, a schema) cannot go on: it allows no token of the model's vocabulary."""


class FetchError(TwostrokeError):
    """A download failed or was interrupted; what arrived is kept for resuming."""


class ChecksumError(FetchError):
    """The bytes fetched do not have the published SHA-256; the file never gets its name."""


class ContextLengthError(TwostrokeError):
    """Prompt (plus requested tokens) longer than the context; the message has both numbers."""


class NotEnoughMemoryError(TwostrokeError):
    """Model plus KV pool plus arena exceed the memory available; the message has the sum."""


class ChatTemplateError(TwostrokeError):
    """The model has no chat template, or it cannot be rendered for these messages."""


class InvalidRequestError(TwostrokeError):
    """A request field is outside its range or contradicts another; the message names it."""


class ConfigError(TwostrokeError):
    """A configuration field is unknown or outside its range, or this machine lacks what was asked for."""


class EngineStoppedError(TwostrokeError):
    """A fault ended the thread that drives the engine: nothing runs any more. Its cause is in the log."""


class EndpointError(TwostrokeError):
    """A server that is to be measured cannot be reached, or answers with errors only; the message has the first."""
