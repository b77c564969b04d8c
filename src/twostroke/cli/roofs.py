"""The roofs that a run is compared with. Owns when they are probed, what is said meanwhile, and probing again where
a run came out above them.
"""

from dataclasses import replace
from threading import Timer

import click

from twostroke.cli.summary import RunAccount, step_bytes
from twostroke.llm.llm import LLM
from twostroke.roofline.probe import probe_roofs

_TOO_HIGH = 1.02  # a fraction above this is the probe's defect
_SAY_AFTER = 1.0


def with_roofs(llm: LLM, account: RunAccount) -> RunAccount:
    """The same account with this machine's roofs, probed where they are not known: within 3 s, then kept."""
    account = _probed(llm, account, refresh=False)
    reached = (account.attainment(account.prefill), account.attainment(account.decode))
    if any(found is not None and (found.roof_fraction or 0.0) > _TOO_HIGH for found in reached):
        account = _probed(llm, account, refresh=True)
    return account


def _probed(llm: LLM, account: RunAccount, *, refresh: bool) -> RunAccount:
    working_set = step_bytes(account.decode) or account.weight_bytes
    notice = Timer(_SAY_AFTER, click.echo, ["probing this machine once…"], {"err": True})
    notice.daemon = True
    notice.start()
    try:
        hardware = probe_roofs(working_set, llm.threads.num_threads, llm.isa, refresh=refresh)
    finally:
        notice.cancel()
    return replace(account, hardware=hardware)
