"""Asks the data whether everything that must be true of it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attune.domain.json_values import Json
from attune.storage.tx import Tx
from attune.storage.upkeep import invariants


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The verdict on one invariant."""

    name: str
    violations: int
    rows: Sequence[Mapping[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The verdict on all of them."""

    ok: bool
    checks: Sequence[Check]


async def check_invariants(tx: Tx) -> CheckReport:
    """Run every check; reads only."""
    checks = []
    for invariant in invariants.INVARIANTS:
        violations, rows = await invariants.find_violations(tx, invariant)
        checks.append(Check(name=invariant.name, violations=violations, rows=rows))
    return CheckReport(ok=all(check.violations == 0 for check in checks), checks=checks)
