"""Statistics through the API: the example of the specification, the history, and the numbers for monitoring."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from attune.api.parts import ApiLimits
from attune.operations.upkeep.record_lines import record_lines
from attune.operations.upkeep.store_counts import store_counts
from attune.runtime.counts import Unstored
from attune.runtime.metrics import build_metrics
from attune.storage.database import Database
from tests.api.running import Api, install_demo, serving
from tests.witness.arrange import make_worker
from tests.witness.arrange_lines import join, make_line
from tests.witness.lines import admit, end, make_policy, release

REF = "demo.anything"
STATS = f"/api/v1/actions/{REF}/queue-stats"
HISTORY = f"{STATS}/history"


async def counted(api: Api) -> tuple[int, int, int, int]:
    stats = (await api.viewer.get(STATS)).json()
    return stats["active_count"], stats["queue_length"], stats["total_enqueued"], stats["total_completed"]


async def record(api: Api) -> None:
    async with api.database.transaction() as tx:
        await record_lines(tx, days=30)


async def test_the_example_of_the_specification_is_shown_step_by_step(api: Api) -> None:
    await make_policy(api.database, scope={"action": REF}, concurrency={"limit": 2})
    worker = await make_worker(api.database, capacity=10, heartbeat_interval=1000)
    ids = []
    # A and B proceed at once, C, D and E wait.
    for expected in [(1, 0, 1, 0), (2, 0, 2, 0), (2, 1, 3, 0), (2, 2, 4, 0), (2, 3, 5, 0)]:
        ids.append((await api.admin.post("/api/v1/executions", json={"action_ref": REF})).json()["id"])
        await admit(api.database)
        assert await counted(api) == expected
    for ended, expected in zip(
        ids, [(2, 2, 5, 1), (2, 1, 5, 2), (2, 0, 5, 3), (1, 0, 5, 4), (0, 0, 5, 5)], strict=True
    ):
        await end(api.database, worker, [ended])
        await release(api.database, [ended])
        assert await counted(api) == expected
    (line,) = (await api.viewer.get("/api/v1/lines", params={"action_ref": REF})).json()["items"]
    log = (await api.viewer.get(f"/api/v1/lines/{line['id']}/admissions")).json()["items"]
    assert [row["execution_id"] for row in log if row["op"] == "admit"] == ids


async def test_the_history_tells_what_happened_since_a_time_in_steps(api: Api) -> None:
    line = await make_line(api.database, REF, active=1)
    await join(api.database, line.line_id, REF, count=3, waited_seconds=30)
    await record(api)
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE queue_stats_history SET minute = minute - interval '3 hours'")
    await join(api.database, line.line_id, REF, count=2)
    await record(api)

    lately = await api.viewer.get(HISTORY)
    since = (datetime.now(UTC) - timedelta(hours=6)).isoformat()
    all_of_it = (await api.viewer.get(HISTORY, params={"since": since, "step": "300"})).json()

    assert lately.status_code == 200
    assert lately.json()["next_cursor"] is None
    (now,) = lately.json()["items"]
    assert (now["enqueued"], now["waiting_max"], now["active_max"], now["limit"]) == (2, 5, 1, 2)
    assert now["oldest_seconds"] >= 30
    assert [step["enqueued"] for step in all_of_it["items"]] == [4, 2]
    assert list(now)[:5] == ["at", "enqueued", "admitted", "completed", "removed"]


async def test_a_history_in_too_many_or_uneven_steps_is_refused_with_what_would_do(api: Api) -> None:
    since = (datetime.now(UTC) - timedelta(days=10)).isoformat()
    refused = await api.admin.get(HISTORY, params={"since": since})
    assert refused.status_code == 400
    assert "steps of 600 seconds" in refused.json()["detail"]
    assert (await api.admin.get(HISTORY, params={"since": since, "step": "600"})).status_code == 200
    for wrong in ({"step": "61"}, {"step": "0"}, {"since": "yesterday"}, {"until": "now"}):
        assert (await api.admin.get(HISTORY, params=wrong)).status_code == 400
    assert (await api.admin.get("/api/v1/actions/demo.unknown/queue-stats/history")).status_code == 404


async def test_the_history_needs_the_permission_of_the_statistics(api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute(
            """UPDATE permission_set SET grants = '[{"resource": "lines", "actions": ["read"]}]'::jsonb
                WHERE ref = 'viewer'"""
        )
    assert (await api.viewer.get(STATS)).status_code == 403
    assert (await api.viewer.get(HISTORY)).status_code == 403


async def test_one_scrape_tells_the_numbers_of_the_whole_platform(api: Api) -> None:
    await make_worker(api.database)
    line = await make_line(api.database, REF, group='{"host":"a"}', active=1)
    await join(api.database, line.line_id, REF, count=2, waited_seconds=90)
    await make_line(api.database, REF, group='{"host":"b"}', waiting=1)
    elsewhere = build_metrics(version="0", service="executor")
    elsewhere.sweep_actions.labels(sweep="lost workers").inc(3)
    await store_counts(api.database, Unstored(elsewhere.counts))
    async with api.database.transaction() as tx:
        await tx.execute("INSERT INTO dead_letter (topic, type, reason, created) VALUES ('a', 'b', 'c', now())")
        await tx.execute(
            """
            INSERT INTO queue_stats_history (scope, minute, total_enqueued, total_admitted, total_completed,
                                             total_removed, waiting, active, waiting_max, active_max, oldest_seconds,
                                             wait_p50, wait_p95, wait_p99)
            SELECT DISTINCT scope, date_trunc('minute', now()) + make_interval(mins => m), 0, 0, 0, 0, 0, 0, 0, 0, 0,
                   1.5, 2.5, 3.5 FROM line, generate_series(-1, 0) m
            """
        )

    told = (await api.viewer.get("/metrics")).text.splitlines()

    scope = f'scope="action:{REF}"'
    assert f"attune_line_waiting{{{scope}}} 3.0" in told
    assert f"attune_line_active{{{scope}}} 1.0" in told
    assert f"attune_line_limit{{{scope}}} 2.0" in told
    assert f'attune_line_wait_seconds{{quantile="0.95",{scope}}} 2.5' in told
    (oldest,) = [row for row in told if row.startswith("attune_line_oldest_seconds{")]
    assert float(oldest.split()[1]) >= 90
    assert 'attune_workers{status="active"} 1.0' in told
    assert 'attune_workers{status="lost"} 0.0' in told
    assert "attune_dead_letter_depth 1.0" in told
    assert 'attune_sweep_actions_total{sweep="lost workers"} 3.0' in told
    assert any(row.startswith("attune_outbox_rows ") for row in told)
    assert not any("host" in row for row in told if row.startswith("attune_line")), "a group is never told"


async def test_line_numbers_can_be_switched_off(database: Database, tmp_path: Path) -> None:
    await install_demo(database)
    await make_line(database, REF, waiting=1)
    async with serving(database, tmp_path / "packs", limits=ApiLimits(line_metrics=False)) as api:
        told = (await api.admin.get("/metrics")).text
    assert "attune_line_waiting{" not in told
    assert "attune_workers{" in told
