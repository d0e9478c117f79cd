"""What people see of workers and do to them, through the API."""

from __future__ import annotations

from pathlib import Path

import pytest

from attune.api.parts import ApiLimits
from attune.storage.database import Database
from tests.api.running import Api, install_demo, serving
from tests.witness.arrange import make_worker, place, request

REF = "demo.anything"
PATIENT = 60.0


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "drain"])
async def test_steering_a_worker_needs_its_permission_and_a_worker(api: Api, verb: str) -> None:
    worker = await make_worker(api.database, heartbeat_interval=PATIENT)
    assert (await api.viewer.post(f"/api/v1/workers/{worker.worker_id}/{verb}")).status_code == 403
    assert (await api.admin.post(f"/api/v1/workers/999/{verb}")).status_code == 404


async def test_a_worker_is_cordoned_drained_and_let_back_in(api: Api) -> None:
    worker = await make_worker(api.database, heartbeat_interval=PATIENT)
    path = f"/api/v1/workers/{worker.worker_id}"
    await place(api.database, await request(api.database, REF, count=2))

    cordoned = (await api.admin.post(f"{path}/cordon")).json()
    assert (cordoned["status"], cordoned["cordoned"], cordoned["load"]) == ("active", True, 2)
    drained = (await api.admin.post(f"{path}/drain")).json()
    assert drained["handed_back"] == 2
    assert (drained["worker"]["status"], drained["worker"]["load"]) == ("draining", 0)
    back = (await api.admin.post(f"{path}/uncordon")).json()
    assert (back["status"], back["cordoned"]) == ("active", False)

    async with api.database.reading() as tx:
        deeds = await tx.fetch("SELECT operation, actor FROM audit_log WHERE operation LIKE 'worker.%' ORDER BY id")
    assert [tuple(row) for row in deeds] == [
        ("worker.cordon", "admin"),
        ("worker.drain", "admin"),
        ("worker.uncordon", "admin"),
    ]


async def test_scaling_counts_what_runs_and_waits_in_each_pool(api: Api) -> None:
    idle = (await api.viewer.get("/api/v1/workers/scaling")).json()
    assert idle == {"workers": 0, "capacity": 0, "wanted": 0, "pools": [], "changes": []}
    await make_worker(api.database, capacity=2, heartbeat_interval=PATIENT)
    await place(api.database, await request(api.database, REF, count=7))

    told = (await api.viewer.get("/api/v1/workers/scaling")).json()

    assert (told["workers"], told["capacity"], told["wanted"]) == (1, 2, 4)
    [pool] = told["pools"]
    assert {name: pool[name] for name in ("runner", "running", "backlog", "workers", "wanted")} == {
        "runner": "shell",
        "running": 2,
        "backlog": 5,
        "workers": 1,
        "wanted": 4,
    }


async def test_a_request_that_nobody_could_run_is_answered_with_its_failure(database: Database, tmp_path: Path) -> None:
    async with serving(database, tmp_path, limits=ApiLimits()) as api:
        await install_demo(database)
        answer = await api.admin.post("/api/v1/executions", json={"action_ref": REF})
        assert answer.status_code == 202
        told = answer.json()
        assert (told["status"], told["error"]["code"]) == ("failed", "no_worker")
        assert told["error"]["message"] == "no workers available: no worker is alive"
        waited = await api.admin.post("/api/v1/executions?wait=30", json={"action_ref": REF})
        assert (waited.status_code, waited.json()["status"]) == (200, "failed")
        batch = await api.admin.post("/api/v1/executions:batch", json={"executions": [{"action_ref": REF}] * 3})
        assert batch.status_code == 202
        for each in batch.json()["executions"]:
            assert (await api.admin.get(f"/api/v1/executions/{each['id']}")).json()["status"] == "failed"


async def test_a_quarantined_action_is_shown_and_released(api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute(
            "UPDATE action SET quarantined_at = now(), lost_workers = ARRAY[gen_random_uuid()] WHERE ref = $1", REF
        )
    shown = (await api.viewer.get(f"/api/v1/actions/{REF}")).json()
    assert shown["quarantined_at"] is not None
    assert (await api.viewer.post(f"/api/v1/actions/{REF}/release")).status_code == 403
    assert (await api.admin.post("/api/v1/actions/demo.nothing/release")).status_code == 404

    released = (await api.admin.post(f"/api/v1/actions/{REF}/release")).json()

    assert (released["quarantined_at"], released["workers_lost"]) == (None, 0)
