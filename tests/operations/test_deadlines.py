"""What ran too long is ended by a sweep; what was lost before that is not blamed for it."""

from __future__ import annotations

import pytest

from attune.operations.expire_executions import expire_deadlines
from attune.operations.rescue_lost import rescue_lost
from attune.storage.database import Database
from tests.witness.arrange import always_half, make_action, make_worker, place, request, start, statuses

# While the database was away nobody could renew or report; the one of these tests may just have been started.
PATIENT_SECONDS = 0.01


@pytest.mark.parametrize(
    ("lease", "status"), [("+ interval '1 minute'", "timeout"), ("- interval '1 minute'", "scheduling")]
)
async def test_an_attempt_that_was_lost_before_its_deadline_is_tried_again_however_late_that_is_noticed(
    database: Database, lease: str, status: str
) -> None:
    await make_action(database, idempotent=True)
    worker = await make_worker(database)
    ids = await request(database)
    await place(database, ids)
    await start(database, worker, [(ids[0], 1)])
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET heartbeat_interval = $1", PATIENT_SECONDS)
        await tx.execute(f"UPDATE assignment SET deadline = now() - interval '1 hour', lease_until = now() {lease}")  # noqa: S608 — the test's own words

    async with database.transaction() as tx:
        await expire_deadlines(tx, draw=always_half)
    async with database.transaction() as tx:
        await rescue_lost(tx, placements_max=5, draw=always_half)

    assert await statuses(database, ids) == [status]
