"""The roofs that a run is compared with. Owns when they are probed, what is said meanwhile, and probing again where
a run came out above them, or far below those of an earlier hour.
"""

from dataclasses import replace
from datetime import timedelta
from threading import Timer

import click

from twostroke.cli.summary import RunAccount, step_bytes
from twostroke.llm.llm import LLM
from twostroke.roofline.probe import probe_roofs
from twostroke.roofline.roofs import MAX_AGE

_TOO_HIGH = 1.02  # a fraction above this is the probe's defect
_LOW = 0.6  # a fraction below this may be the machine's: others use its memory too
_FRESH = timedelta(minutes=10)  # a roof of the same hour is the same machine's
_SAY_AFTER = 1.0


def with_roofs(llm: LLM, account: RunAccount) -> RunAccount:
    """The same account with this machine's roofs, probed where they are not known: within 3 s, then kept."""
    account = _probed(llm, account)
    decode = account.attainment(account.decode)
    if decode is not None and (decode.roof_fraction or _LOW) < _LOW:
        account = _probed(llm, account, max_age=_FRESH)
    reached = (account.attainment(account.prefill), account.attainment(account.decode))
    if any(found is not None and (found.roof_fraction or 0.0) > _TOO_HIGH for found in reached):
        account = _probed(llm, account, refresh=True)
    return account


def _probed(llm: LLM, account: RunAccount, *, refresh: bool = False, max_age: timedelta = MAX_AGE) -> RunAccount:
    working_set = step_bytes(account.decode) or account.weight_bytes
    notice = Timer(_SAY_AFTER, click.echo, ["probing this machine once…"], {"err": True})
    notice.daemon = True
    notice.start()
    try:
        hardware = probe_roofs(working_set, llm.threads.num_threads, llm.isa, refresh=refresh, max_age=max_age)
    finally:
        notice.cancel()
    return replace(account, hardware=hardware)
