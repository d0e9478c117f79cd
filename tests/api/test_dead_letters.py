"""Dead letters over HTTP: found, counted, sent again, dropped, and only by those who may."""

from __future__ import annotations

from datetime import UTC, datetime

from attune.domain.endings.dead_letters import Expiry
from attune.domain.messages import Message
from attune.operations.dead_letters.bury_dead_letters import bury_dead_letters
from attune.storage import dead_letters
from tests.api.running import Api
from tests.witness.arrange import make_action, make_worker, place, request, start

PATH = "/api/v1/dead-letters"
DIED = datetime(2026, 1, 2, tzinfo=UTC)


async def park(api: Api, count: int = 1, *, reason: str = "failed too often") -> list[int]:
    message = Message(
        id=1, topic="pool.changed", type="pool.changed", items=((7, 0),), deliveries=5, created=DIED, not_before=DIED
    )
    async with api.database.transaction() as tx:
        return [await dead_letters.insert(tx, message, reason=reason, error="bug") for _ in range(count)]


async def expire_one(api: Api, worker_name: str = "silent") -> int:
    await make_action(api.database)
    await make_worker(api.database, name=worker_name)
    [execution] = await request(api.database)
    await place(api.database, [execution])
    death = Expiry(item=(execution, 1), deaths=("worker.1.executions expired at noon",), died_at=DIED)
    async with api.database.transaction() as tx:
        await bury_dead_letters(tx, [death], placements_max=5)
    return execution


async def test_an_expired_dispatch_is_listed_with_its_deaths_and_what_became_of_it(api: Api) -> None:
    execution = await expire_one(api)

    [letter] = (await api.admin.get(PATH, params={"execution_id": execution, "reason": "expired"})).json()["items"]

    assert letter["items"] == [[execution, 1]]
    assert letter["deaths"] == ["worker.1.executions expired at noon"]
    assert (letter["outcome"], letter["outcome_by"]) == ("placed_elsewhere", "dead_letter_handler")
    assert letter["action_ref"] == "demo.work"
    assert (await api.admin.get(f"{PATH}/{letter['id']}")).json() == letter
    assert (await api.admin.get(PATH, params={"open": "true"})).json()["items"] == []


async def test_pages_follow_each_other(api: Api) -> None:
    parked = await park(api, 5)
    seen, cursor = [], None
    while True:
        page = (await api.admin.get(PATH, params={"limit": 2} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [letter["id"] for letter in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == parked[::-1]


async def test_stats_count_by_what_dead_letters_have_in_common(api: Api) -> None:
    await expire_one(api)
    await park(api, 2)

    stats = (await api.admin.get(f"{PATH}/stats", params={"group_by": "action,reason"})).json()

    assert (stats["depth"], stats["open"], stats["unhandled"], stats["last_minute"]) == (2, 2, 0, 3)
    counted = {(row["action"], row["worker"], row["reason"]): row["count"] for row in stats["groups"]}
    assert counted == {("demo.work", None, "expired"): 1, (None, None, "failed too often"): 2}
    later = (await api.admin.get(f"{PATH}/stats", params={"since": "2100-01-01T00:00:00Z"})).json()
    assert later["groups"] == []
    assert (await api.admin.get(f"{PATH}/stats", params={"group_by": "colour"})).status_code == 400


async def test_one_is_sent_again_once_and_the_second_answer_says_so(api: Api) -> None:
    [parked] = await park(api)

    first = await api.admin.post(f"{PATH}/{parked}/replay")
    second = await api.admin.post(f"{PATH}/{parked}/replay")

    assert (first.status_code, first.json()["effect"], first.json()["outcome"]) == (200, True, "replayed")
    assert (second.status_code, second.json()["effect"], second.json()["outcome"]) == (200, False, "replayed")


async def test_a_selection_is_dropped_and_the_rest_stays(api: Api) -> None:
    parked = await park(api, 3)
    [other] = await park(api, reason="invalid")

    answer = (await api.admin.post(f"{PATH}:drop", params={"reason": "failed too often", "limit": 2})).json()

    assert [each["id"] for each in answer["items"]] == parked[1:]
    assert answer["more"] is True
    left = (await api.admin.get(PATH, params={"open": "true"})).json()["items"]
    assert [each["id"] for each in left] == [other, parked[0]]


async def test_a_viewer_looks_and_does_nothing(api: Api) -> None:
    [parked] = await park(api)
    assert (await api.viewer.get(f"{PATH}/{parked}")).status_code == 200
    assert (await api.viewer.get(f"{PATH}/stats")).status_code == 200
    for path in (f"{PATH}/{parked}/replay", f"{PATH}/{parked}/drop", f"{PATH}:replay", f"{PATH}:drop"):
        assert (await api.viewer.post(path)).status_code == 403


async def test_what_does_not_exist_is_not_found(api: Api) -> None:
    assert (await api.admin.get(f"{PATH}/77")).status_code == 404
    assert (await api.admin.post(f"{PATH}/77/replay")).status_code == 404


async def test_the_depth_is_among_the_metrics(api: Api) -> None:
    await park(api, 2)
    await expire_one(api)  # It has been dealt with.
    assert "attune_dead_letter_depth 2.0" in (await api.admin.get("/metrics")).text.splitlines()


async def test_a_worker_shows_what_it_let_expire(api: Api) -> None:
    execution = await expire_one(api)
    [worker] = (await api.admin.get("/api/v1/workers")).json()["items"]
    assert worker["recent_dead_letters"] == 1
    assert execution


async def test_force_ends_a_running_execution_at_once_and_needs_its_own_right(api: Api) -> None:
    await make_action(api.database)
    worker = await make_worker(api.database)
    [execution] = await request(api.database)
    await place(api.database, [execution])
    await start(api.database, worker, [(execution, 1)])
    path = f"/api/v1/executions/{execution}/cancel"

    assert (await api.viewer.post(path, params={"force": "true"})).status_code == 403
    assert (await api.admin.post(path)).json()["status"] == "canceling"
    assert (await api.admin.post(path, params={"force": "true"})).json()["status"] == "cancelled"

    async with api.database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM assignment") == 0


async def test_a_request_may_have_its_own_time_to_live(api: Api) -> None:
    await make_action(api.database)
    body = {"action_ref": "demo.work", "worker_id": 999, "worker_queue_ttl_seconds": 1.5}
    assert (await api.admin.post("/api/v1/executions", json=body)).status_code == 202
    assert (await api.admin.post("/api/v1/executions", json=body | {"worker_queue_ttl_seconds": 0})).status_code == 422
    async with api.database.reading() as tx:
        assert await tx.fetch_column("SELECT worker_queue_ttl_seconds FROM execution") == [1.5]
