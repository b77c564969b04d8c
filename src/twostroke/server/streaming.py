"""What a body says about streaming. Owns how its fields go together."""

from twostroke.server.errors import ApiError
from twostroke.server.protocol.sampling import SamplingRequest


def check_stream(body: SamplingRequest) -> None:
    """Raises ApiError (400) for options of a stream where there is none."""
    for name in ("stream_options", "return_progress"):
        if getattr(body, name) and not body.stream:
            raise ApiError(400, f"{name} needs stream: true", "invalid_parameter", name)


def includes_usage(body: SamplingRequest) -> bool:
    """A stream's last chunk is to have the usage."""
    return bool(body.stream_options and body.stream_options.include_usage)


def counts_on(body: SamplingRequest) -> bool:
    """Every chunk of a stream is to have the usage so far."""
    return bool(body.stream_options and body.stream_options.continuous_usage_stats)
