"""The roofs that a run is compared with. Owns when they are probed, what is said meanwhile, and probing again where
a run came out above them.
"""

from collections.abc import Callable
from dataclasses import replace
from threading import Timer

import click

from twostroke.cli.summary import RunAccount, step_bytes
from twostroke.llm.llm import LLM
from twostroke.roofline.bound import raised_to
from twostroke.roofline.probe import roofs_of_model

_TOO_HIGH = 1.02  # a fraction above this is the probe's defect
_SECONDS, _MORE_SECONDS = 0.5, 2.0
_SAY_AFTER = 1.0


def with_roofs(llm: LLM, account: RunAccount) -> RunAccount:
    """The same account with this machine's roofs: within 3 s the first time, half a second once arithmetic is known."""
    account = _probed(llm, account, llm.probe_weights)
    reached = (account.attainment(account.prefill), account.attainment(account.decode))
    if any(found is not None and (found.roof_fraction or 0.0) > _TOO_HIGH for found in reached):
        before = account.hardware.read_bandwidth[0][1] if account.hardware else 0.0
        account = _probed(llm, account, lambda seconds: max(before, llm.probe_weights(seconds)), again=True)
        if account.hardware is not None:
            reached = (account.attainment(account.prefill), account.attainment(account.decode))
            account = replace(account, hardware=raised_to(account.hardware, reached))
    return account


def _probed(llm: LLM, account: RunAccount, read: Callable[[float], float], *, again: bool = False) -> RunAccount:
    working_set = step_bytes(account.decode) or account.weight_bytes
    seconds = _MORE_SECONDS if again else _SECONDS
    notice = Timer(_SAY_AFTER, click.echo, ["probing this machine's roofs…"], {"err": True})
    notice.daemon = True
    notice.start()
    try:
        hardware = roofs_of_model(read, working_set, llm.threads.num_threads, llm.isa, budget_s=seconds, refresh=again)
    finally:
        notice.cancel()
    return replace(account, hardware=hardware)
