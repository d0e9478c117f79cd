"""What every witness says of an upgrade, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import asyncpg

from tests.upgrade.upgrade import NEW, Upgrade

OLD_NAMES = frozenset({"executor-1", "executor-2", "worker-1", "worker-2"})
WHY_FAILED = (
    "SELECT action_ref || ': ' || (error ->> 'code') || ': ' || min(error ->> 'message'), count(*)"
    " FROM attune.execution WHERE status <> 'succeeded' GROUP BY action_ref, error ->> 'code'"
)
NEW_NAMES = frozenset(name for service, name in NEW if service != "api")


async def judge(upgrade: Upgrade) -> dict[str, object]:
    """Everything accepted ended once and well, both versions did work, and no message was given up."""
    database, load = upgrade.database, upgrade.load
    statuses = await _count(database, "SELECT status, count(*) FROM attune.execution GROUP BY 1")
    actors = await _count(database, "SELECT actor, count(*) FROM attune.execution_history GROUP BY 1")
    letters = await _count(database, "SELECT reason, count(*) FROM attune.dead_letter GROUP BY 1")
    check = json.loads(await upgrade.new.run("check", "-o", "json", check=False))
    faults = list(load.refused)
    if statuses != {"succeeded": len(load.accepted)} or len(set(load.accepted)) != len(load.accepted):
        faults.append(f"{len(load.accepted)} were accepted: {statuses} {await _count(database, WHY_FAILED)}")
    if doubled := upgrade.ledger.doubled_starts():
        faults.append(f"started twice in one attempt: {doubled[:5]}")
    if letters:
        faults.append(f"dead letters: {letters}")
    faults += [f"check {each['name']}: {each['rows'][:3]}" for each in check["checks"] if each["violations"]]
    faults += _idle(actors)
    return {
        **upgrade.seen,
        "executions": len(load.accepted),
        "asked_again": load.again,
        "tried_again": await database.fetchval("SELECT count(*) FROM attune.execution WHERE tries > 1"),
        "moves_by": {name: actors[name] for name in sorted(actors.keys() & (OLD_NAMES | NEW_NAMES))},
        "dead_letters": letters,
        "check": bool(check["ok"]),
        "faults": faults,
        "ok": not faults,
    }


async def _count(database: asyncpg.Pool, statement: str) -> dict[str, int]:
    return {row[0]: row[1] for row in await database.fetch(statement)}


def _idle(actors: Mapping[str, int]) -> list[str]:
    """Who had no part in it: an upgrade that one version did alone proves nothing."""
    found = [f"{name} did nothing" for name in sorted(OLD_NAMES | NEW_NAMES) if name.startswith("worker")]
    found = [each for each in found if each.split()[0] not in actors]
    for side in (OLD_NAMES, NEW_NAMES):
        if not any(name.startswith("executor") for name in side & actors.keys()):
            found.append(f"no executor of {sorted(side)} did anything")
    return found
