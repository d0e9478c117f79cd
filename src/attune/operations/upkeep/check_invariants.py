"""Asks the data whether everything that must be true of it is.

The logs are read from the checkpoint on. If nothing in them is broken, the checkpoint moves to where this check ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.json_values import Json
from attune.runtime.clock import monotonic
from attune.storage.tx import Tx
from attune.storage.upkeep import checkpoints, invariants
from attune.storage.upkeep.checkpoints import EVERYTHING, Checkpoint
from attune.storage.upkeep.claims.invariant import Invariant, Reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The verdict on one invariant."""

    name: str
    violations: int
    rows: Sequence[Mapping[str, Json]]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The verdict on all of them."""

    ok: bool
    checks: Sequence[Check]


async def check_invariants(tx: Tx, *, everything: bool = False) -> CheckReport:
    """Run every check in one snapshot; `everything` reads the logs from their beginning."""
    await checkpoints.prepare_reading(tx)
    since = EVERYTHING if everything else await checkpoints.find_verified(tx)
    checks = [await _check(tx, invariant, since) for invariant in invariants.INVARIANTS]
    broken = {check.name for check in checks if check.violations}
    logs = {invariant.name for invariant in invariants.INVARIANTS if invariant.reads is not Reads.STATE}
    # What broke is to be found again by the next check.
    if not broken & logs and await checkpoints.may_be_moved(tx):
        await checkpoints.try_move(tx)
    return CheckReport(ok=not broken, checks=checks)


async def _check(tx: Tx, invariant: Invariant, since: Checkpoint) -> Check:
    began = monotonic()
    await checkpoints.avoid_whole_tables(tx, invariant.reads, since)
    violations, rows = await invariants.find_violations(tx, invariant, since)
    return Check(name=invariant.name, violations=violations, rows=rows, seconds=round(monotonic() - began, 4))
