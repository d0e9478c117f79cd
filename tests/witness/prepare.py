"""Requests of one caller, checked as the API checks those of many."""

from __future__ import annotations

from collections.abc import Sequence

from attune.domain.errors import AttuneError
from attune.operations.acceptance import Request, Wish
from attune.operations.prepare_executions import prepare_executions
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage.births import NewExecution
from attune.storage.tx import Tx


async def prepare(
    tx: Tx, requests: Sequence[Request], *, requested_by: str = "test", vault: Vault = WITHOUT_KEY
) -> list[NewExecution]:
    """What is to be accepted; raises what is wrong with it."""
    wish = Wish(requests=requests, identity=None, requested_by=requested_by)
    (prepared,) = await prepare_executions(tx, [wish], vault=vault)
    if isinstance(prepared, AttuneError):
        raise prepared
    return prepared
