"""Names and shapes that scripts outside the code rely on, seen only from outside: processes, files and HTTP.

The same promises are kept on the embedded default and, marked `external`, on PostgreSQL 15 with RabbitMQ.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.witness.platform import Platform, running_platform
from tests.witness.servers import start_postgres_15, start_rabbitmq
from tests.witness.waiting import until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300), pytest.mark.xdist_group("contract")]

DEMO = {
    "pack.yaml": "ref: demo\nversion: 1.0.0\n",
    "actions/slow.yaml": (
        "ref: demo.slow\n"
        "runner: shell\n"
        'command: \'sleep 0.1; echo "{\\"n\\":1}"\'\n'
        "parameters: {type: object, properties: {n: {type: integer}, host: {type: string}}, required: [n],"
        " additionalProperties: false}\n"
        "output_format: json\n"
        "timeout_seconds: 60\n"
        "idempotent: true\n"
        "retry: {max_attempts: 3, retry_on: [worker_lost]}\n"
    ),
    "policies/slow.yaml": (
        "ref: demo.slow_limit\n"
        "scope: {action: demo.slow}\n"
        "concurrency: {limit: 2, method: enqueue, parameters: []}\n"
        "rate_limit: {max: 10, window_seconds: 1, method: delay}\n"
        "quota: {per_day: 1000}\n"
        "max_queue_length: 10000\n"
        "queue_timeout_seconds: 3600\n"
    ),
}


@pytest.fixture(
    scope="module", params=["embedded", pytest.param("external", marks=[pytest.mark.external, pytest.mark.rabbitmq])]
)
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[Platform]:
    settings = {"ATTUNE__WORKER__CAPACITY": "8"}
    async with AsyncExitStack() as stack:
        if request.param == "external":
            database = await stack.enter_async_context(start_postgres_15())
            broker = await stack.enter_async_context(start_rabbitmq())
            settings |= {
                "ATTUNE__DATABASE__URL": database.url("postgres"),
                "ATTUNE__MESSAGE_QUEUE__URL": broker.url(),
            }
        running = await stack.enter_async_context(running_platform(settings=settings))
        write_demo_pack(running.home / "demo")
        await running.run("pack", "install", str(running.home / "demo"))
        yield running


@pytest.fixture(scope="module")
async def client(platform: Platform) -> AsyncIterator[httpx2.AsyncClient]:
    async with platform.client() as client:
        yield client


def write_demo_pack(folder: Path) -> None:
    for name, text in DEMO.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


async def status_of(platform: Platform) -> dict[str, object]:
    document = (await platform.run("status", "-o", "json")).document
    assert isinstance(document, dict)
    return document


async def test_the_home_holds_everything_and_its_secrets_are_private(platform: Platform) -> None:
    assert {"secrets", "data", "logs", "run"} <= {each.name for each in platform.home.iterdir()}
    secrets = list((platform.home / "secrets").iterdir())
    assert secrets
    assert {stat.S_IMODE(each.stat().st_mode) for each in secrets} == {0o600}
    assert (platform.home / "logs" / "executor-1.log").is_file()


async def test_status_names_every_process(platform: Platform) -> None:
    document = await status_of(platform)

    assert document["url"] == platform.url
    assert document["ready"] is True
    assert document["transport"] in {"postgres", "rabbitmq"}
    processes = {each["name"]: each for each in document["processes"]}  # type: ignore[attr-defined]  # JSON
    assert {"api-1", "executor-1", "worker-1", "sensor-1", "notifier-1"} <= set(processes)
    assert set(processes["executor-1"]) >= {"name", "service", "pid", "state", "restarts"}
    assert processes["executor-1"]["service"] == "executor"
    assert processes["executor-1"]["state"] == "running"


async def test_every_process_has_its_title_and_carries_the_home(platform: Platform) -> None:
    for name, pid in (await platform.processes()).items():
        if name == "postgres":
            continue
        process = psutil.Process(pid)
        assert " ".join(process.cmdline()).startswith(f"attune-{name.rsplit('-', 1)[0]}")
        assert process.environ()["ATTUNE_HOME"] == str(platform.home)


async def test_a_killed_process_comes_back_under_its_name(platform: Platform) -> None:
    before = (await platform.processes())["sensor-1"]
    os.kill(before, signal.SIGKILL)

    async def back() -> bool:
        return (await platform.processes()).get("sensor-1", before) != before

    await until(back)


async def test_scale_changes_how_many_run(platform: Platform) -> None:
    await platform.run("scale", "executor=3")

    async def three() -> bool:
        return {"executor-1", "executor-2", "executor-3"} <= set(await platform.processes())

    await until(three)
    await platform.run("scale", "executor=1")

    async def one() -> bool:
        return "executor-2" not in await platform.processes()

    await until(one)


async def test_a_second_up_in_the_same_home_is_refused(platform: Platform) -> None:
    answer = await platform.run("up", "--detach", "--port", str(platform.port), check=False)

    assert answer.code != 0
    assert str(platform.home) in answer.err


async def test_every_route_but_the_public_ones_wants_a_token(platform: Platform) -> None:
    async with httpx2.AsyncClient(base_url=platform.url) as anybody:
        assert (await anybody.get("/healthz")).status_code == 200
        assert (await anybody.get("/readyz")).status_code == 200
        for path in ("/api/v1/executions", "/api/v1/actions", "/metrics"):
            refused = await anybody.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["content-type"].startswith("application/problem+json")


async def test_a_viewers_token_reads_and_changes_nothing(platform: Platform) -> None:
    secret = (
        await platform.run("token", "create", "--name", "v", "--permission-set", "viewer", "-o", "value")
    ).out.strip()
    async with httpx2.AsyncClient(base_url=platform.url, headers={"Authorization": f"Bearer {secret}"}) as viewer:
        assert (await viewer.get("/api/v1/executions")).status_code == 200
        refused = await viewer.post("/api/v1/executions", json={"action_ref": "core.noop", "parameters": {}})
    assert refused.status_code == 403
    assert refused.json()["code"] == "forbidden"


async def test_an_execution_runs_and_reads_as_promised(client: httpx2.AsyncClient) -> None:
    body = {
        "action_ref": "demo.slow",
        "parameters": {"n": 1},
        "priority": 0,
        "trace_tag": "t1",
        "not_before": None,
        "worker_id": None,
    }
    answer = await client.post("/api/v1/executions?wait=30", json=body)

    assert answer.status_code == 200, answer.text
    execution = answer.json()
    assert execution["status"] == "succeeded"
    assert execution["result"] == {"n": 1}
    assert set(execution) >= {
        *("id", "action_ref", "status", "attempt", "tries", "parameters", "result", "error", "worker", "executor"),
        *("line", "trace_tag", "created", "queued_at", "scheduled_at", "started_at", "ended_at", "parent"),
        "enforcement",
    }
    history = (await client.get(f"/api/v1/executions/{execution['id']}/history")).json()
    moves = history["items"] if isinstance(history, dict) else history
    assert [move["to"] for move in moves] == ["queued", "scheduled", "running", "succeeded"]
    assert set(moves[0]) >= {"from", "to", "attempt", "actor", "reason", "at"}


async def test_a_line_and_its_admissions_read_as_promised(client: httpx2.AsyncClient) -> None:
    await client.post("/api/v1/executions?wait=30", json={"action_ref": "demo.slow", "parameters": {"n": 1}})
    (line,) = (await client.get("/api/v1/lines", params={"action_ref": "demo.slow"})).json()["items"]

    assert set(line) >= {
        *("id", "scope", "group", "limit", "active", "waiting", "paused", "total_enqueued", "total_completed"),
    }
    assert line["limit"] == 2
    answer = await client.get(f"/api/v1/lines/{line['id']}/admissions", params={"after": "0", "limit": "1000"})
    rows = answer.json()["items"]
    assert set(rows[0]) >= {"n", "op", "execution_id", "seq", "priority", "limit_in_force", "active", "at"}
    assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
    statistics = (await client.get("/api/v1/actions/demo.slow/queue-stats")).json()
    assert set(statistics) >= {
        *("action_id", "queue_length", "active_count", "max_concurrent", "oldest_enqueued_at", "total_enqueued"),
        *("total_completed", "last_updated"),
    }


async def test_one_scrape_tells_what_every_process_counted(client: httpx2.AsyncClient) -> None:
    await client.post("/api/v1/executions?wait=30", json={"action_ref": "demo.slow", "parameters": {"n": 1}})

    async def counted() -> bool:
        told = (await client.get("/metrics")).text
        return 'attune_executions_total{status="succeeded"}' in told and 'scope="action:demo.slow"' in told

    await until(counted, seconds=60)
    told = dict(line.rsplit(" ", 1) for line in (await client.get("/metrics")).text.splitlines() if line[0] != "#")
    assert float(told["attune_request_to_running_seconds_count"]) >= 1


async def test_the_history_of_a_line_reads_as_promised(client: httpx2.AsyncClient) -> None:
    await client.post("/api/v1/executions?wait=30", json={"action_ref": "demo.slow", "parameters": {"n": 1}})

    async def recorded() -> bool:
        history = (await client.get("/api/v1/actions/demo.slow/queue-stats/history")).json()
        return any(step["completed"] for step in history["items"])

    await until(recorded, seconds=60)


async def test_why_says_where_an_execution_is(client: httpx2.AsyncClient) -> None:
    done = (await client.post("/api/v1/executions?wait=30", json={"action_ref": "core.noop", "parameters": {}})).json()
    why = (await client.get(f"/api/v1/executions/{done['id']}/why")).json()

    assert set(why) == {"sentence", "code", "facts"}


async def test_without_waiting_an_execution_is_accepted(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/executions", json={"action_ref": "core.noop", "parameters": {}})

    assert answer.status_code == 202
    assert {"id", "status"} <= set(answer.json())


async def test_a_batch_keeps_its_order_and_is_all_or_nothing(client: httpx2.AsyncClient) -> None:
    good = {"action_ref": "core.noop", "parameters": {}, "trace_tag": "batch"}
    answer = await client.post("/api/v1/executions:batch", json={"executions": [good] * 20})
    ids = [each["id"] for each in answer.json()["executions"]]
    assert answer.status_code == 202
    assert ids == sorted(ids)

    bad = await client.post(
        "/api/v1/executions:batch", json={"executions": [good, {"action_ref": "demo.slow", "parameters": {}}]}
    )
    assert bad.status_code == 422
    listed = (await client.get("/api/v1/executions", params={"trace_tag": "batch"})).json()
    assert len(listed["items"]) == 20
    assert listed["next_cursor"] is None


async def test_lists_page_by_cursor(client: httpx2.AsyncClient) -> None:
    tagged = {"action_ref": "core.noop", "parameters": {}, "trace_tag": "pages"}
    await client.post("/api/v1/executions:batch", json={"executions": [tagged] * 5})
    seen, cursor = [], None
    while True:
        query = {"trace_tag": "pages", "limit": "2", "sort": "id"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/api/v1/executions", params=query)).json()
        seen += [each["id"] for each in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == 5
    assert seen == sorted(seen)


async def test_an_unknown_action_names_the_nearest(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/executions", json={"action_ref": "core.ecko", "parameters": {}})

    assert answer.status_code == 404
    assert "core.echo" in answer.json()["detail"]


async def test_work_pinned_to_an_unknown_worker_waits_for_it(client: httpx2.AsyncClient) -> None:
    body = {"action_ref": "core.noop", "parameters": {}, "worker_id": 999_999}
    execution = (await client.post("/api/v1/executions", json=body)).json()

    async def scheduled() -> bool:
        return bool((await client.get(f"/api/v1/executions/{execution['id']}")).json()["status"] == "scheduled")

    await until(scheduled)
    assert (await client.post(f"/api/v1/executions/{execution['id']}/cancel")).status_code == 202


async def test_the_command_line_runs_an_action_with_values_typed_by_its_schema(platform: Platform) -> None:
    document = (await platform.run("run", "demo.slow", "n=7", "--wait", "-o", "json")).document

    assert isinstance(document, dict)
    assert document["status"] == "succeeded"
    assert document["parameters"] == {"n": 7}


async def test_a_request_leads_to_public_addresses_only(platform: Platform) -> None:
    url = f"http://127.0.0.1:{platform.port}/healthz"
    answer = await platform.run("run", "core.http.get", f"url={url}", "--wait", "-o", "json", check=False)

    assert answer.code == 1
    assert isinstance(answer.document, dict)
    assert answer.document["tries"] == 1
    error = answer.document["error"]
    assert isinstance(error, dict)
    assert error["code"] == "http_refused"


async def test_a_failed_command_shows_its_exit_code_and_both_streams(platform: Platform) -> None:
    answer = await platform.run("run", "core.shell", "cmd=echo out; echo err >&2; exit 3", "--wait", check=False)

    assert answer.code == 1
    said = answer.out + answer.err
    assert "out" in said
    assert "err" in said
    assert "exit code 3" in said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("execution", "show", "999999999"), 4),
        (("run", "core.missing"), 4),
        (("run", "demo.slow", "n=word"), 5),
        (("no-such-command",), 2),
    ],
)
async def test_exit_codes_tell_what_went_wrong(platform: Platform, arguments: tuple[str, ...], code: int) -> None:
    assert (await platform.run(*arguments, check=False)).code == code


async def test_installing_the_same_pack_again_changes_nothing(platform: Platform, client: httpx2.AsyncClient) -> None:
    before = (await client.get("/api/v1/actions/demo.slow")).json()
    await platform.run("pack", "install", str(platform.home / "demo"), "-o", "json")

    assert (await client.get("/api/v1/actions/demo.slow")).json() == before


async def test_definitions_are_created_by_rest_with_the_same_fields(client: httpx2.AsyncClient) -> None:
    pack = await client.post("/api/v1/packs", json={"ref": "rest", "version": "1.0.0"})
    assert pack.status_code == 201, pack.text
    action = await client.post(
        "/api/v1/actions",
        json={"ref": "rest.hello", "runner": "shell", "command": "echo hello", "output_format": "text"},
    )
    assert action.status_code == 201, action.text
    policy = await client.post(
        "/api/v1/policies",
        json={"ref": "rest.limit", "scope": {"action": "rest.hello"}, "concurrency": {"limit": 2}},
    )
    assert policy.status_code == 201, policy.text
    patched = await client.patch("/api/v1/policies/rest.limit", json={"concurrency": {"limit": 3}})
    assert patched.status_code == 200, patched.text
    assert patched.json()["concurrency"]["limit"] == 3


async def test_check_reports_every_invariant(platform: Platform) -> None:
    document = (await platform.run("check", "-o", "json")).document

    assert isinstance(document, dict)
    assert document["ok"] is True
    assert all(set(each) >= {"name", "violations", "rows"} for each in document["checks"])


async def test_the_topology_is_as_it_should_be(platform: Platform) -> None:
    answer = await platform.run("topology", "--verify", check=False)

    assert answer.code == 0, answer.out + answer.err


async def test_the_database_can_be_asked_directly(platform: Platform) -> None:
    assert (await platform.run("db", "url")).out.startswith("postgresql://")
    answer = await platform.run("db", "psql", "-c", "SELECT count(*) FROM execution WHERE status = 'succeeded'")
    assert "count" in answer.out


async def test_down_leaves_no_process_and_may_be_repeated() -> None:
    async with running_platform() as platform:
        pids = list((await platform.processes()).values())
        await platform.run("down")
        assert [pid for pid in pids if psutil.pid_exists(pid)] == []
        assert (await platform.run("down")).code == 0
