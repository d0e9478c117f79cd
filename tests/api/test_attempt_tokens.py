"""The token of an attempt opens what that attempt needs, as long as it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest

from attune.domain.retry import Ending, Outcome
from attune.operations.cancel_execution import cancel_execution
from attune.operations.finish_executions import Report, finish_executions
from attune.runtime.passwords import mint_attempt_token
from attune.storage.assignments import Held
from attune.storage.database import Database
from tests.api.running import Api, client
from tests.witness.arrange import TestWorker, always_half, make_worker, place, start

EXECUTIONS = "/api/v1/executions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An attempt under way, and HTTP with its token."""

    held: Held
    worker: TestWorker
    http: httpx2.AsyncClient

    @property
    def path(self) -> str:
        return f"{EXECUTIONS}/{self.held.execution_id}"


@pytest.fixture
async def running(api: Api) -> AsyncIterator[Running]:
    """Somebody asked for it, and a worker has claimed it."""
    worker = await make_worker(api.database)
    number = (await api.admin.post(EXECUTIONS, json={"action_ref": "demo.anything"})).json()["id"]
    await place(api.database, [number])
    (started,) = await start(api.database, worker, [(number, 1)])
    held = Held(execution_id=number, attempt=1, lease=started.lease)
    async with client(api.url, mint_attempt_token(number, 1, started.lease)) as http:
        yield Running(held=held, worker=worker, http=http)


async def finish(database: Database, running: Running) -> None:
    report = Report(held=running.held, worker_id=running.worker.worker_id, ending=Ending(outcome=Outcome.SUCCEEDED))
    async with database.transaction() as tx:
        await finish_executions(tx, [report], actor="worker-1", draw=always_half)


async def test_an_attempt_sees_its_own_execution(running: Running) -> None:
    for path in ("", "/history", "/logs", "/children", "/why"):
        answer = await running.http.get(running.path + path)
        assert answer.status_code == 200, answer.text


async def test_the_token_ends_with_the_attempt(running: Running, api: Api) -> None:
    await finish(api.database, running)

    answer = await running.http.get(running.path)

    assert (answer.status_code, answer.json()["code"]) == (401, "bad_token")


async def test_the_token_ends_when_the_lease_is_taken_away(running: Running, api: Api) -> None:
    async with api.database.transaction() as tx:
        await cancel_execution(tx, running.held.execution_id, actor="test", force=True)

    assert (await running.http.get(running.path)).status_code == 401


async def test_the_token_ends_when_the_lease_runs_out(running: Running, api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE assignment SET lease_until = now() - interval '1 second'")

    assert (await running.http.get(running.path)).status_code == 401


async def test_the_token_of_an_earlier_attempt_is_no_token(running: Running, api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE assignment SET attempt = 2")

    assert (await running.http.get(running.path)).status_code == 401


@pytest.mark.parametrize("change", ["another lease", "another execution", "another attempt"])
async def test_a_token_cannot_be_made_from_another(running: Running, api: Api, change: str) -> None:
    token = running.http.headers["authorization"].removeprefix("Bearer ")
    _, number, attempt, proof = token.split("x")
    forged = {
        "another lease": f"att_x{number}x{attempt}x{'0' * len(proof)}",
        "another execution": f"att_x{int(number) + 1}x{attempt}x{proof}",
        "another attempt": f"att_x{number}x{int(attempt) + 1}x{proof}",
    }[change]
    async with client(api.url, forged) as http:
        assert (await http.get(running.path)).status_code == 401


async def test_the_executions_of_others_do_not_exist_for_an_attempt(running: Running, api: Api) -> None:
    other = (await api.admin.post(EXECUTIONS, json={"action_ref": "demo.anything"})).json()["id"]

    for path in ("", "/history", "/logs", "/logs/stream", "/children", "/why"):
        assert (await running.http.get(f"{EXECUTIONS}/{other}{path}")).status_code == 404


async def test_an_attempt_asks_for_children_and_sees_them(running: Running, api: Api) -> None:
    answer = await running.http.post(EXECUTIONS, json={"action_ref": "demo.anything"})

    assert answer.status_code == 202, answer.text
    child = answer.json()
    assert child["parent"] == running.held.execution_id
    assert (await running.http.get(f"{EXECUTIONS}/{child['id']}")).json()["parent"] == running.held.execution_id
    history = (await api.admin.get(f"{EXECUTIONS}/{child['id']}/history")).json()
    assert history[0]["actor"] == f"execution/{running.held.execution_id}"


async def test_an_attempt_may_ask_for_no_more_than_whoever_asked_for_it(running: Running, api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute("DELETE FROM identity_permission_set")

    asked = await running.http.post(EXECUTIONS, json={"action_ref": "demo.anything"})
    read = await running.http.get(running.path)

    assert (asked.status_code, read.status_code) == (403, 200)


async def test_an_attempt_of_somebody_shut_out_is_shut_out_too(running: Running, api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE identity SET enabled = false")

    assert (await running.http.get(running.path)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", EXECUTIONS, None),
        ("GET", "/api/v1/workers", None),
        ("GET", "/api/v1/actions", None),
        ("POST", "/api/v1/tokens", {"name": "x"}),
        ("POST", EXECUTIONS, {"action_ref": "demo.anything", "worker_id": 1}),
        ("POST", EXECUTIONS, {"action_ref": "demo.anything", "priority": 5}),
    ],
)
async def test_everything_else_is_closed_to_an_attempt(
    running: Running, method: str, path: str, body: dict[str, object] | None
) -> None:
    assert (await running.http.request(method, path, json=body)).status_code == 403


async def test_an_attempt_cannot_cancel_even_itself(running: Running) -> None:
    assert (await running.http.post(f"{running.path}/cancel", json={})).status_code == 403
