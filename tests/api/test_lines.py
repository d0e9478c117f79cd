"""What people see of lines and do to them, through the API."""

from __future__ import annotations

from attune.storage.database import Database
from tests.api.running import Api
from tests.witness.arrange import make_worker
from tests.witness.arrange_lines import join, make_line

REF = "demo.anything"
FIELDS = ["id", "scope", "group", "limit", "active", "waiting", "paused", "total_enqueued", "total_completed"]


async def log_admissions(database: Database, line_id: int, ids: list[int], *, seconds_ago: float) -> None:
    """That these were admitted and left again, each a second after the other."""
    async with database.transaction() as tx:
        for op in ("admit", "release"):
            await tx.execute(
                """
                WITH n AS (UPDATE line SET next_n = next_n + cardinality($2::bigint[]) WHERE id = $1
                           RETURNING next_n - cardinality($2::bigint[]) AS first)
                INSERT INTO admission_log (line_id, n, op, execution_id, at)
                SELECT $1, n.first + i - 1, $3, x, now() - make_interval(secs => $4 - i)
                  FROM n, unnest($2::bigint[]) WITH ORDINALITY AS e (x, i)
                """,
                line_id,
                ids,
                op,
                seconds_ago,
            )


async def test_a_line_is_shown_with_its_scope_and_counters(api: Api) -> None:
    line = await make_line(api.database, REF, group='{"host":"a"}', active=1, waiting=2)
    answer = await api.viewer.get(f"/api/v1/lines/{line.line_id}")
    assert answer.status_code == 200
    shown = answer.json()
    assert list(shown)[: len(FIELDS)] == FIELDS
    assert [shown[name] for name in FIELDS] == [line.line_id, f"action:{REF}", {"host": "a"}, 2, 1, 2, False, 3, 0]
    assert shown["oldest_enqueued_at"] is not None


async def test_the_oldest_is_found_behind_higher_priorities(api: Api) -> None:
    line = await make_line(api.database, REF)
    await join(api.database, line.line_id, REF, count=1, waited_seconds=100)
    await join(api.database, line.line_id, REF, count=2, priority=5, waited_seconds=50)
    await join(api.database, line.line_id, REF, count=1, priority=-5, waited_seconds=10)
    async with api.database.reading() as tx:
        oldest = await tx.fetch_value("SELECT min(enqueued_at) FROM line_entry")
    shown = (await api.admin.get(f"/api/v1/lines/{line.line_id}")).json()
    assert shown["oldest_enqueued_at"] == oldest.isoformat().replace("+00:00", "Z")


async def test_lines_are_listed_page_by_page_and_by_action(api: Api) -> None:
    mine = [await make_line(api.database, REF, group=f'{{"n":{n}}}') for n in range(3)]
    other = await make_line(api.database, "demo.count")
    first = (await api.admin.get("/api/v1/lines", params={"action_ref": REF, "limit": 2})).json()
    second = (await api.admin.get("/api/v1/lines", params={"action_ref": REF, "cursor": first["next_cursor"]})).json()
    assert [line["id"] for page in (first, second) for line in page["items"]] == [line.line_id for line in mine]
    everything = (await api.admin.get("/api/v1/lines")).json()["items"]
    assert [line["id"] for line in everything] == [*(line.line_id for line in mine), other.line_id]
    nothing = await api.admin.get("/api/v1/lines", params={"action_ref": "demo.unknown"})
    assert nothing.json() == {"items": [], "next_cursor": None}


async def test_the_line_of_a_pack_is_found_by_each_action_it_governs(api: Api) -> None:
    async with api.database.transaction() as tx:
        line_id = await tx.fetch_value(
            """
            WITH p AS (INSERT INTO policy (ref, scope, max_concurrent) SELECT 'demo.all', 'pack:' || id, 3 FROM pack
                        WHERE ref = 'demo' RETURNING id, scope)
            INSERT INTO line (policy_id, scope, group_hash, max_concurrent) SELECT id, scope, '', 3 FROM p RETURNING id
            """
        )
    for ref in (REF, "demo.count"):
        (line,) = (await api.admin.get("/api/v1/lines", params={"action_ref": ref})).json()["items"]
        assert (line["id"], line["scope"], line["policy"]) == (line_id, "pack:demo", "demo.all")


async def test_the_log_of_a_line_is_told_in_order_from_any_place(api: Api) -> None:
    line = await make_line(api.database, REF, waiting=5)
    path = f"/api/v1/lines/{line.line_id}/admissions"
    everything = (await api.admin.get(path)).json()["items"]
    assert [row["n"] for row in everything] == [1, 2, 3, 4, 5]
    assert [row["execution_id"] for row in everything] == list(line.waiting)
    names = ["n", "op", "execution_id", "seq", "priority", "limit_in_force", "active", "at", "reason"]
    assert list(everything[0]) == names
    page = (await api.admin.get(path, params={"after": 1, "limit": 2})).json()
    assert [row["n"] for row in page["items"]] == [2, 3]
    rest = (await api.admin.get(path, params={"cursor": page["next_cursor"]})).json()
    assert [row["n"] for row in rest["items"]] == [4, 5]


async def test_pausing_and_resuming_is_answered_with_the_line(api: Api) -> None:
    line = await make_line(api.database, REF, waiting=1)
    paused = await api.admin.post(f"/api/v1/lines/{line.line_id}/pause")
    assert paused.status_code == 200
    assert (paused.json()["paused"], paused.json()["paused_by"]) == (True, "admin")
    resumed = (await api.admin.post(f"/api/v1/lines/{line.line_id}/resume")).json()
    assert (resumed["paused"], resumed["paused_by"]) == (False, None)
    log = (await api.admin.get(f"/api/v1/lines/{line.line_id}/admissions")).json()["items"]
    assert [(row["op"], row["reason"]) for row in log[-2:]] == [("pause", "paused by admin"), ("limit", "resumed")]
    audit = (await api.admin.get("/api/v1/audit", params={"limit": 2})).json()["items"]
    assert [row["operation"] for row in audit] == ["line.resume", "line.pause"]


async def test_clearing_answers_how_many_it_cancelled(api: Api) -> None:
    first = await make_line(api.database, REF, active=1, waiting=3)
    await make_line(api.database, "demo.count", waiting=2)
    one = await api.admin.post(f"/api/v1/lines/{first.line_id}/clear")
    assert one.json() == {"lines": 1, "cancelled": 3}
    execution = (await api.admin.get(f"/api/v1/executions/{first.waiting[0]}")).json()
    assert (execution["status"], execution["error"]["code"]) == ("cancelled", "line_cleared")
    rest = await api.admin.post("/api/v1/lines:clear")
    # The entries of the first line stay until an executor has handled the ends.
    assert rest.json() == {"lines": 2, "cancelled": 2}


async def test_looking_is_not_enough_to_steer_a_line(api: Api) -> None:
    line = await make_line(api.database, REF, waiting=1)
    for verb in ("pause", "resume", "clear"):
        assert (await api.viewer.post(f"/api/v1/lines/{line.line_id}/{verb}")).status_code == 403
    assert (await api.viewer.post("/api/v1/lines:clear")).status_code == 403
    assert (await api.stranger.get("/api/v1/lines")).status_code == 401


async def test_statistics_need_their_own_permission(api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute(
            """UPDATE permission_set SET grants = '[{"resource": "lines", "actions": ["read"]}]'::jsonb
                WHERE ref = 'viewer'"""
        )
    assert (await api.viewer.get("/api/v1/lines")).status_code == 200
    refused = await api.viewer.get(f"/api/v1/actions/{REF}/queue-stats")
    assert refused.status_code == 403
    assert "queue_stats:read" in refused.json()["detail"]


async def test_a_line_that_does_not_exist_is_not_found(api: Api) -> None:
    for path in ("/api/v1/lines/999", "/api/v1/lines/999/admissions", "/api/v1/lines/x"):
        assert (await api.admin.get(path)).status_code == 404
    for verb in ("pause", "resume", "clear"):
        assert (await api.admin.post(f"/api/v1/lines/999/{verb}")).status_code == 404


async def test_statistics_of_an_action_that_never_waited_are_zero_and_healthy(api: Api) -> None:
    stats = (await api.admin.get(f"/api/v1/actions/{REF}/queue-stats")).json()
    assert (stats["queue_length"], stats["active_count"], stats["total_enqueued"]) == (0, 0, 0)
    assert stats["health"] == {"verdict": "healthy", "reasons": []}
    assert (stats["wait_p50"], stats["tail_eta_seconds"]) == (None, 0.0)
    assert (await api.admin.get("/api/v1/actions/demo.unknown/queue-stats")).status_code == 404


async def test_statistics_hold_the_totals_the_groups_and_the_ages(api: Api) -> None:
    first = await make_line(api.database, REF, group='{"host":"a"}', active=2, waiting=1)
    second = await make_line(api.database, REF, group='{"host":"b"}', active=2)
    await join(api.database, second.line_id, REF, count=3, waited_seconds=400)
    await make_line(api.database, "demo.count", waiting=7)
    stats = (await api.admin.get(f"/api/v1/actions/{REF}/queue-stats")).json()
    totals = ["queue_length", "active_count", "max_concurrent", "total_enqueued", "total_completed", "lines", "paused"]
    assert [stats[name] for name in totals] == [4, 4, 2, 8, 0, 2, False]
    assert [(line["id"], line["waiting"]) for line in stats["groups"]] == [(first.line_id, 1), (second.line_id, 3)]
    assert [bucket["waiting"] for bucket in stats["age_histogram"]] == [1, 0, 3, 0, 0]
    assert [bucket["under_seconds"] for bucket in stats["age_histogram"]] == [60, 300, 1800, 3600, None]
    assert stats["health"]["verdict"] == "busy", "the oldest has waited more than five minutes"


async def test_the_columns_of_the_specification_agree_with_the_view_of_the_database(api: Api) -> None:
    await make_line(api.database, REF, active=2, waiting=3)
    stats = (await api.admin.get(f"/api/v1/actions/{REF}/queue-stats")).json()
    async with api.database.reading() as tx:
        row = await tx.fetch_row("SELECT * FROM queue_stats")
    assert row is not None
    stored = {
        name: value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else value
        for name, value in dict(row).items()
    }
    assert {name: stats[name] for name in stored} == stored


async def test_waits_rates_and_the_end_of_the_line_come_from_what_happened_lately(api: Api) -> None:
    line = await make_line(api.database, REF, active=2)
    done = await join(api.database, line.line_id, REF, count=10, state="active", waited_seconds=100)
    await join(api.database, line.line_id, REF, count=5)
    await log_admissions(api.database, line.line_id, done, seconds_ago=20)
    stats = (await api.admin.get(f"/api/v1/actions/{REF}/queue-stats")).json()
    # They were admitted 80 to 90 seconds after they came, one a second.
    assert 84 < stats["wait_p50"] < 87
    assert 89 < stats["wait_p95"] <= stats["wait_p99"] < 91
    assert 0.4 < stats["completions_per_second"] < 0.6
    assert stats["arrivals_per_second"] > 0
    assert 8 < stats["tail_eta_seconds"] < 13


async def test_a_free_slot_beside_somebody_who_waits_is_critical_unless_it_is_meant(api: Api) -> None:
    line = await make_line(api.database, REF, active=1)
    await join(api.database, line.line_id, REF, count=1, waited_seconds=30)
    path = f"/api/v1/actions/{REF}/queue-stats"
    assert (await api.admin.get(path)).json()["health"]["verdict"] == "critical"
    await api.admin.post(f"/api/v1/lines/{line.line_id}/pause")
    paused = (await api.admin.get(path)).json()
    assert (paused["health"]["verdict"], paused["paused"]) == ("warning", True)


async def test_why_tells_the_place_in_line_and_who_holds_the_slots(api: Api) -> None:
    await make_worker(api.database)
    line = await make_line(api.database, REF, group='{"host":"a"}', active=2, waiting=3)
    answer = await api.viewer.get(f"/api/v1/executions/{line.waiting[1]}/why")
    assert answer.status_code == 200
    told = answer.json()
    assert told["code"] == "in_line"
    assert told["sentence"].startswith(f"position 2 of 3 in line {REF}[host=a]; 2 of 2 slots held by executions ")
    assert [each["execution_id"] for each in told["facts"]["line"]["holders"]] == list(line.active)


async def test_why_counts_those_with_a_higher_priority_as_in_front(api: Api) -> None:
    await make_worker(api.database)
    line = await make_line(api.database, REF, active=2, waiting=2)
    await join(api.database, line.line_id, REF, count=3, priority=1)
    await join(api.database, line.line_id, REF, count=3, priority=-1)
    told = (await api.admin.get(f"/api/v1/executions/{line.waiting[1]}/why")).json()
    assert told["sentence"].startswith(f"position 5 of 8 in line {REF};")


async def test_why_names_who_paused_the_line(api: Api) -> None:
    line = await make_line(api.database, REF, waiting=1)
    await api.admin.post(f"/api/v1/lines/{line.line_id}/pause")
    told = (await api.admin.get(f"/api/v1/executions/{line.waiting[0]}/why")).json()
    assert told["code"] == "line_paused"
    assert told["sentence"].startswith(f"line {REF} is paused by admin since ")


async def test_why_names_the_runtime_that_no_worker_has(api: Api) -> None:
    await make_worker(api.database, runtimes=("native",))
    line = await make_line(api.database, REF, waiting=1)
    told = (await api.admin.get(f"/api/v1/executions/{line.waiting[0]}/why")).json()
    assert told["code"] == "no_worker"
    assert told["sentence"].startswith("no live worker has runtime shell")


async def test_why_tells_until_when_a_rate_limit_holds(api: Api) -> None:
    await make_worker(api.database)
    line = await make_line(api.database, REF, waiting=1)
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE line SET wake_at = now() + interval '1 minute' WHERE id = $1", line.line_id)
    told = (await api.admin.get(f"/api/v1/executions/{line.waiting[0]}/why")).json()
    assert told["code"] == "rate_limited"


async def test_why_tells_of_an_end_and_of_a_start_that_lies_ahead(api: Api) -> None:
    line = await make_line(api.database, REF, waiting=1)
    await api.admin.post(f"/api/v1/executions/{line.waiting[0]}/cancel")
    ended = (await api.admin.get(f"/api/v1/executions/{line.waiting[0]}/why")).json()
    assert (ended["code"], ended["sentence"].rpartition(": ")[2]) == ("cancelled", "cancelled by admin")
    later = {"action_ref": "demo.anything", "not_before": "2999-01-01T00:00:00Z"}
    asked = (await api.admin.post("/api/v1/executions", json=later)).json()
    ahead = (await api.admin.get(f"/api/v1/executions/{asked['id']}/why")).json()
    assert (ahead["code"], ahead["sentence"]) == (
        "not_before",
        "asked to start at 2999-01-01 00:00:00 UTC, which lies ahead",
    )
    assert (await api.admin.get("/api/v1/executions/999999/why")).status_code == 404
