"""Alerts over HTTP: listed, shown, and counted for a monitoring system."""

from __future__ import annotations

from attune.domain.alerts.catalogue import ALERTS
from attune.storage.database import Database
from tests.api.running import Api

PATH = "/api/v1/alerts"


async def make_alert(database: Database, name: str, state: str, *, subject: str = "") -> int:
    async with database.transaction() as tx:
        return int(
            await tx.fetch_value(
                """
                INSERT INTO alert (name, subject, severity, state, message, facts, since, seen_at, fired_at,
                                   resolved_at)
                VALUES ($1, $2, 'warning', $3, 'something is wrong', '{"waiting": 120}', now(), now(),
                        CASE WHEN $3 <> 'pending' THEN now() END, CASE WHEN $3 = 'resolved' THEN now() END)
                RETURNING id
                """,
                name,
                subject,
                state,
            )
        )


async def test_alerts_are_listed_the_newest_first_and_what_did_not_fire_only_if_asked_for(api: Api) -> None:
    over = await make_alert(api.database, "queue_long", "resolved", subject="line:1")
    firing = await make_alert(api.database, "queue_long", "firing", subject="line:1")
    other = await make_alert(api.database, "dlq_rate", "firing")
    pending = await make_alert(api.database, "no_active_workers", "pending")

    async def ids(**query: str | int) -> list[int]:
        answer = await api.viewer.get(PATH, params=query)
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()["items"]]

    assert await ids() == [other, firing, over]
    assert await ids(state="firing") == [other, firing]
    assert await ids(state="resolved", name="queue_long") == [over]
    assert await ids(state="pending") == [pending]
    assert await ids(name="queue_stuck") == []
    assert (await api.viewer.get(PATH, params={"state": "loud"})).status_code == 400


async def test_pages_follow_each_other(api: Api) -> None:
    made = [await make_alert(api.database, "queue_long", "resolved") for _ in range(5)]
    seen, cursor = [], None
    while True:
        page = (await api.viewer.get(PATH, params={"limit": 2} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [each["id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == made[::-1]


async def test_one_alert_tells_its_facts_and_the_page_that_helps(api: Api) -> None:
    alert_id = await make_alert(api.database, "queue_long", "firing", subject="line:7")
    shown = (await api.viewer.get(f"{PATH}/{alert_id}")).json()
    assert (shown["subject"], shown["state"], shown["facts"]) == ("line:7", "firing", {"waiting": 120})
    assert shown["runbook"] == "docs/how-to/troubleshoot/lines-grow.md"
    assert (await api.viewer.get(f"{PATH}/999")).status_code == 404
    assert (await api.stranger.get(PATH)).status_code == 401


async def test_a_monitoring_system_is_told_what_fires_and_what_does_not(api: Api) -> None:
    await make_alert(api.database, "queue_long", "firing", subject="line:1")
    await make_alert(api.database, "queue_long", "firing", subject="line:2")
    await make_alert(api.database, "dlq_rate", "pending")
    told = (await api.viewer.get("/metrics")).text.splitlines()
    for alert in ALERTS:
        assert f'attune_alerts_firing{{name="{alert.name}"}} {2.0 if alert.name == "queue_long" else 0.0}' in told
