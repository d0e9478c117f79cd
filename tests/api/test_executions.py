"""What asking for executions promises."""

from __future__ import annotations

import asyncio
from pathlib import Path

from attune.api.parts import ApiLimits
from attune.domain.execution import Change, Failure, Status
from attune.operations.change_executions import change_executions
from attune.storage import executions as rows
from attune.storage.database import Database
from tests.api.running import Api, install_demo, serving

FIELDS = [
    "id",
    "action_ref",
    "status",
    "attempt",
    "tries",
    "parameters",
    "result",
    "error",
    "worker",
    "executor",
    "line",
    "trace_tag",
    "created",
    "queued_at",
    "scheduled_at",
    "started_at",
    "ended_at",
    "parent",
    "enforcement",
    "inherits_slot_of",
]
FILTERS: tuple[dict[str, str], ...] = ({}, {"status": "requested"}, {"trace_tag": "t"}, {"action_ref": "demo.anything"})


async def count(database: Database) -> int:
    async with database.reading() as tx:
        number: int = await tx.fetch_value("SELECT count(*) FROM execution")
        return number


async def end(database: Database, execution_id: int) -> None:
    async with database.transaction() as tx:
        await rows.lock_many(tx, [execution_id])
        failure = Failure(code="test", message="ended by a test", by="test")
        change = Change(
            execution_id=execution_id,
            current=Status.REQUESTED,
            attempt=0,
            target=Status.FAILED,
            actor="test",
            failure=failure,
        )
        await change_executions(tx, [change])


async def test_a_request_is_accepted_and_can_be_read_back(api: Api) -> None:
    asked = {"action_ref": "demo.count", "parameters": {"n": 1}, "trace_tag": "t1"}
    answer = await api.admin.post("/api/v1/executions", json=asked)
    assert answer.status_code == 202
    accepted = answer.json()
    assert accepted["status"] == "requested"
    assert list(accepted) == FIELDS
    read = await api.admin.get(f"/api/v1/executions/{accepted['id']}")
    assert read.json() == accepted


async def test_an_accepted_request_is_announced_to_the_executors(api: Api) -> None:
    accepted = (await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"})).json()
    async with api.database.reading() as tx:
        items = await tx.fetch_column("SELECT items FROM outbox WHERE topic = 'execution.requested'")
    assert items == [[[accepted["id"], 0]]]


async def test_the_history_begins_with_who_asked(api: Api) -> None:
    accepted = (await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"})).json()
    (move,) = (await api.admin.get(f"/api/v1/executions/{accepted['id']}/history")).json()
    assert (move["from"], move["to"], move["actor"]) == (None, "requested", "admin")


async def test_a_batch_keeps_its_order(api: Api) -> None:
    asked = [{"action_ref": "demo.count", "parameters": {"n": n}} for n in range(50)]
    answer = await api.admin.post("/api/v1/executions:batch", json={"executions": asked})
    assert answer.status_code == 202
    ids = [each["id"] for each in answer.json()["executions"]]
    assert ids == sorted(ids)
    listed = (await api.admin.get("/api/v1/executions", params={"sort": "id"})).json()["items"]
    assert [(each["id"], each["parameters"]["n"]) for each in listed] == list(zip(ids, range(50), strict=True))


async def test_a_batch_is_accepted_as_a_whole_or_not_at_all(api: Api) -> None:
    asked = [{"action_ref": "demo.count", "parameters": {"n": 1}}, {"action_ref": "demo.count", "parameters": {}}]
    answer = await api.admin.post("/api/v1/executions:batch", json={"executions": asked})
    assert answer.status_code == 422
    assert all(error["pointer"].startswith("/executions/1/parameters") for error in answer.json()["errors"])
    assert await count(api.database) == 0


async def test_a_batch_of_more_than_a_thousand_is_refused(api: Api) -> None:
    asked = {"executions": [{"action_ref": "demo.anything"}] * 1001}
    answer = await api.admin.post("/api/v1/executions:batch", json=asked)
    assert answer.status_code == 422
    assert await count(api.database) == 0


async def test_one_bad_request_leaves_its_neighbours_alone(api: Api) -> None:
    good = [{"action_ref": "demo.count", "parameters": {"n": n}} for n in range(40)]
    asked = [*good[:20], {"action_ref": "demo.count", "parameters": {"n": "x"}}, *good[20:]]
    answers = await asyncio.gather(*(api.admin.post("/api/v1/executions", json=each) for each in asked))
    assert [answer.status_code for answer in answers] == [202] * 20 + [422] + [202] * 20
    assert await count(api.database) == 40


async def test_requests_that_arrive_together_share_transactions(api: Api) -> None:
    body = {"action_ref": "demo.anything"}
    await asyncio.gather(*(api.admin.post("/api/v1/executions", json=body) for _ in range(60)))
    async with api.database.reading() as tx:
        transactions = await tx.fetch_value("SELECT count(DISTINCT xid) FROM execution_history")
    assert transactions < 60


async def test_waiting_answers_when_the_execution_has_ended(api: Api) -> None:
    asked = asyncio.create_task(
        api.admin.post("/api/v1/executions", params={"wait": 20}, json={"action_ref": "demo.anything"})
    )
    while not await count(api.database):
        await asyncio.sleep(0.01)
    (listed,) = (await api.admin.get("/api/v1/executions")).json()["items"]
    await end(api.database, listed["id"])
    answer = await asked
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")


async def test_waiting_in_vain_answers_accepted(api: Api) -> None:
    answer = await api.admin.post("/api/v1/executions", params={"wait": 0.05}, json={"action_ref": "demo.anything"})
    assert (answer.status_code, answer.json()["status"]) == (202, "requested")


async def test_many_who_wait_hold_no_connections(api: Api) -> None:
    waiting = [
        asyncio.create_task(
            api.admin.post("/api/v1/executions", params={"wait": 20}, json={"action_ref": "demo.anything"})
        )
        for _ in range(40)
    ]
    while await count(api.database) < 40:
        await asyncio.sleep(0.01)
    listed = (await api.admin.get("/api/v1/executions")).json()["items"]
    for each in listed:
        await end(api.database, each["id"])
    assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_who_waits_is_answered_when_the_service_stops(api: Api) -> None:
    asked = asyncio.create_task(
        api.admin.post("/api/v1/executions", params={"wait": 20}, json={"action_ref": "demo.anything"})
    )
    while not await count(api.database):
        await asyncio.sleep(0.01)
    api.stop.set()
    async with asyncio.timeout(3):
        assert (await asked).status_code == 202


async def test_the_same_key_and_body_give_the_same_execution(api: Api) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {"action_ref": "demo.count", "parameters": {"n": 1}}
    first = await api.admin.post("/api/v1/executions", json=body, headers=headers)
    second = await api.admin.post("/api/v1/executions", json=body, headers=headers)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] == second.json()["id"]
    assert await count(api.database) == 1


async def test_the_same_key_sent_many_times_at_once_makes_one_execution(api: Api) -> None:
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(
        *(
            api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"}, headers=headers)
            for _ in range(20)
        )
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert await count(api.database) == 1


async def test_a_key_used_with_another_body_is_refused(api: Api) -> None:
    headers = {"Idempotency-Key": "k1"}
    await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"}, headers=headers)
    other = {"action_ref": "demo.anything", "trace_tag": "other"}
    answer = await api.admin.post("/api/v1/executions", json=other, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_mismatch")
    assert await count(api.database) == 1


async def test_a_batch_can_be_repeated_safely(api: Api) -> None:
    headers = {"Idempotency-Key": "b1"}
    body = {"executions": [{"action_ref": "demo.anything"}] * 3}
    first = await api.admin.post("/api/v1/executions:batch", json=body, headers=headers)
    second = await api.admin.post("/api/v1/executions:batch", json=body, headers=headers)
    assert first.json() == second.json()
    assert await count(api.database) == 3


async def test_cancelling_ends_what_has_not_started(api: Api) -> None:
    accepted = (await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"})).json()
    answer = await api.admin.post(f"/api/v1/executions/{accepted['id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
    again = await api.admin.post(f"/api/v1/executions/{accepted['id']}/cancel", json={})
    assert (again.status_code, again.json()["status"]) == (202, "cancelled")


async def test_an_execution_that_does_not_exist_is_not_found(api: Api) -> None:
    for name in ("7", "99999999999999999999", "x", "-1"):
        assert (await api.admin.get(f"/api/v1/executions/{name}")).status_code == 404


async def test_pages_lead_through_the_whole_list_once(api: Api) -> None:
    body = {"executions": [{"action_ref": "demo.anything", "trace_tag": "t"}] * 25}
    ids = [each["id"] for each in (await api.admin.post("/api/v1/executions:batch", json=body)).json()["executions"]]
    for sort, expected in (("id", ids), ("-id", ids[::-1])):
        for filters in FILTERS:
            seen: list[int] = []
            cursor: str | None = None
            while True:
                query: dict[str, str | int] = {
                    "limit": 10,
                    "sort": sort,
                    **filters,
                    **({"cursor": cursor} if cursor else {}),
                }
                page = (await api.admin.get("/api/v1/executions", params=query)).json()
                seen += [each["id"] for each in page["items"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            assert seen == expected


async def test_logs_are_read_by_stream_and_page(api: Api) -> None:
    accepted = (await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"})).json()
    async with api.database.transaction() as tx:
        await tx.execute(
            """
            INSERT INTO execution_log (execution_id, attempt, stream, seq, content)
            VALUES ($1, 1, 'stdout', 1, 'a'), ($1, 1, 'stderr', 2, 'b'), ($1, 2, 'stdout', 1, 'c')
            """,
            accepted["id"],
        )
    path = f"/api/v1/executions/{accepted['id']}/logs"
    first = (await api.admin.get(path, params={"limit": 2})).json()
    rest = (await api.admin.get(path, params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [line["text"] for line in first["items"] + rest["items"]] == ["a", "b", "c"]
    errors = (await api.admin.get(path, params={"stream": "stderr"})).json()
    assert [line["text"] for line in errors["items"]] == ["b"]


async def test_a_full_outbox_refuses_until_it_has_drained(database: Database, tmp_path: Path) -> None:
    await install_demo(database)
    body = {"action_ref": "demo.anything"}
    async with serving(
        database, tmp_path, limits=ApiLimits(refuse_above=2, accept_below=1, no_worker_grace_seconds=60)
    ) as api:
        statuses: list[int] = []
        while 503 not in statuses:
            answer = await api.admin.post("/api/v1/executions", json=body)
            statuses.append(answer.status_code)
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["code"] == "outbox_full"
        async with database.transaction() as tx:
            await tx.execute("DELETE FROM outbox")
        while (await api.admin.post("/api/v1/executions", json=body)).status_code == 503:
            await asyncio.sleep(0.05)
