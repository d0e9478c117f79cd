"""Large results are listed, fetched whole or in part, and removed in time."""

from __future__ import annotations

import hashlib
import os

import pytest

from attune.operations.keep_artifact import keep_artifact
from attune.operations.upkeep.keep_house import Keeping, keep_house
from attune.runtime.passwords import mint_attempt_token
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.output.artifacts import PIECE_BYTES, NewArtifact
from tests.api.running import Api, client
from tests.api.test_log_stream import begin, worker
from tests.witness.arrange import TestWorker

__all__ = ["worker"]

CONTENT = os.urandom(2 * PIECE_BYTES + 1000)
KEEPING = Keeping(dead_letter_seconds=3600, idempotency_hours=24, history_days=7)


async def keep(database: Database, held: Held, content: bytes = CONTENT, name: str = "result.json") -> int | None:
    digest = hashlib.sha256(content).hexdigest()
    new = NewArtifact(held=held, name=name, media_type="application/json", bytes=len(content), sha256=digest)
    async with database.transaction() as tx:
        return await keep_artifact(tx, new, content)


async def test_an_artifact_comes_back_as_it_was(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    number = await keep(api.database, held)

    listed = (await api.viewer.get("/api/v1/artifacts", params={"execution_id": held.execution_id})).json()["items"]
    shown = (await api.viewer.get(f"/api/v1/artifacts/{number}")).json()
    content = await api.viewer.get(f"/api/v1/artifacts/{number}/content")

    assert listed == [shown]
    assert (shown["bytes"], shown["name"], shown["attempt"]) == (len(CONTENT), "result.json", 1)
    assert content.content == CONTENT
    assert content.headers["content-length"] == str(len(CONTENT))
    assert content.headers["content-disposition"].startswith("attachment")
    assert hashlib.sha256(content.content).hexdigest() == shown["sha256"]


@pytest.mark.parametrize(
    ("first", "last"), [(0, 0), (PIECE_BYTES - 1, PIECE_BYTES), (10, 2 * PIECE_BYTES + 5), (2 * PIECE_BYTES, None)]
)
async def test_a_part_of_it_can_be_fetched(api: Api, worker: TestWorker, first: int, last: int | None) -> None:
    number = await keep(api.database, await begin(api, worker))

    answer = await api.admin.get(
        f"/api/v1/artifacts/{number}/content", headers={"Range": f"bytes={first}-{'' if last is None else last}"}
    )

    end = len(CONTENT) - 1 if last is None else last
    assert answer.status_code == 206
    assert answer.content == CONTENT[first : end + 1]
    assert answer.headers["content-range"] == f"bytes {first}-{end}/{len(CONTENT)}"


async def test_storing_it_twice_stores_it_once(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)

    assert await keep(api.database, held) == await keep(api.database, held)
    async with api.database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM artifact_piece") == 3


async def test_an_attempt_without_its_lease_stores_nothing(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    async with api.database.transaction() as tx:
        await tx.execute("DELETE FROM assignment")

    assert await keep(api.database, held) is None


async def test_an_attempt_sees_its_own_artifacts_only(api: Api, worker: TestWorker) -> None:
    mine, other = await begin(api, worker), await begin(api, worker)
    of_mine, of_other = await keep(api.database, mine), await keep(api.database, other)

    async with client(api.url, mint_attempt_token(mine.execution_id, 1, mine.lease)) as http:
        listed = (await http.get("/api/v1/artifacts")).json()["items"]
        seen = await http.get(f"/api/v1/artifacts/{of_mine}/content")
        hidden = await http.get(f"/api/v1/artifacts/{of_other}/content")

    assert [each["id"] for each in listed] == [of_mine]
    assert (seen.status_code, hidden.status_code) == (200, 404)


async def test_old_output_artifacts_and_secrets_are_removed(api: Api, worker: TestWorker, database: Database) -> None:
    held = await begin(api, worker)
    await keep(database, held)
    await keep(database, held, b"{}", name="fresh.json")
    async with database.transaction() as tx:
        await tx.execute("UPDATE artifact SET created = now() - interval '31 days' WHERE name = 'result.json'")
        await tx.execute(
            """
            INSERT INTO sealed_parameters (execution_id, sealed, created)
            SELECT n, '', now() - interval '31 days' FROM unnest(ARRAY[$1::bigint, 4711]) n
            """,
            held.execution_id,
        )
        await tx.execute(
            """
            CREATE TABLE execution_log_20200101 PARTITION OF execution_log
                FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')
            """
        )
    async with database.transaction() as tx:
        await keep_house(tx, KEEPING)

    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT name FROM artifact") == ["fresh.json"]
        assert await tx.fetch_value("SELECT count(*) FROM artifact_piece") == 1
        # That of a living execution stays, however old.
        assert await tx.fetch_column("SELECT execution_id FROM sealed_parameters") == [held.execution_id]
        assert await tx.fetch_value("SELECT to_regclass('execution_log_20200101')") is None
        assert await tx.fetch_value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'execution_log'::regclass") >= 8
