"""Bad input gets a clear answer, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from structlog.testing import capture_logs

from attune.api.parts import ApiLimits
from attune.storage.database import Database
from tests.api.running import Api, serving

JSON = {"Content-Type": "application/json"}
NOT_JSON = (
    (b'{"action_ref": "demo.anything",\n  oops}', "line 2, column 3"),
    (b'{"action_ref": "demo', "line 1, column 21: it ends too early"),
    (b"", "empty"),
    (b'{"action_ref": "\xff"}', "UTF-8"),
    (b"[" * 100_000, "nested deeper"),
)
WITH_NUL = {
    "/trace_tag": {"action_ref": "demo.anything", "trace_tag": "a\0b"},
    "/action_ref": {"action_ref": "demo\0", "parameters": {}},
    "/parameters/x/0": {"action_ref": "demo.anything", "parameters": {"x": ["\0"]}},
    "/parameters": {"action_ref": "demo.anything", "parameters": {"a\0": 1}},
}
WRONG_QUERIES = ("limitt=1", "limit=0", "limit=x", "cursor=nonsense", "sort=name", "status=done", "limit=1&limit=2")


async def nothing_was_created(api: Api) -> bool:
    async with api.database.reading() as tx:
        return not await tx.fetch_value("SELECT EXISTS (SELECT 1 FROM execution) OR EXISTS (SELECT 1 FROM outbox)")


async def test_an_unknown_action_is_answered_with_the_nearest_name(api: Api) -> None:
    answer = await api.admin.post("/api/v1/executions", json={"action_ref": "demo.cuont"})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (404, "unknown_action")
    assert "did you mean 'demo.count'?" in problem["detail"]
    assert problem["errors"][0]["pointer"] == "/action_ref"
    assert answer.headers["content-type"] == "application/problem+json"
    assert await nothing_was_created(api)


async def test_every_bad_parameter_is_named_by_its_pointer(api: Api) -> None:
    asked = {"action_ref": "demo.count", "parameters": {"n": "x", "host": 3, "extra": 1}}
    answer = await api.admin.post("/api/v1/executions", json=asked)
    assert answer.status_code == 422
    pointers = {error["pointer"] for error in answer.json()["errors"]}
    assert pointers == {"/parameters/n", "/parameters/host", "/parameters/extra"}
    assert await nothing_was_created(api)


async def test_every_bad_field_is_named_by_its_pointer(api: Api) -> None:
    asked = {"action_ref": 1, "prioritty": 3, "priority": "high", "not_before": "soon", "worker_id": 0}
    answer = await api.admin.post("/api/v1/executions", json=asked)
    assert answer.status_code == 422
    errors = {error["pointer"]: error["message"] for error in answer.json()["errors"]}
    assert set(errors) == {"/action_ref", "/prioritty", "/priority", "/not_before", "/worker_id"}
    assert "did you mean 'priority'?" in errors["/prioritty"]


async def test_a_bad_field_inside_a_batch_is_named_by_its_place(api: Api) -> None:
    asked = {"executions": [{"action_ref": "demo.anything"}, {"action_ref": "demo.anything", "trace_tag": 7}]}
    answer = await api.admin.post("/api/v1/executions:batch", json=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/executions/1/trace_tag"


async def test_a_batch_of_one_names_its_place_too(api: Api) -> None:
    asked = {"executions": [{"action_ref": "demo.nothing"}]}
    answer = await api.admin.post("/api/v1/executions:batch", json=asked)
    assert answer.status_code == 404
    assert answer.json()["errors"][0]["pointer"] == "/executions/0/action_ref"


async def test_what_is_not_json_is_answered_with_the_place(api: Api) -> None:
    for body, where in NOT_JSON:
        answer = await api.admin.post("/api/v1/executions", content=body, headers=JSON)
        assert (body[:30], answer.status_code, answer.json()["code"]) == (body[:30], 400, "bad_json")
        assert where in answer.json()["detail"]


async def test_nul_characters_are_refused_by_their_place(api: Api) -> None:
    for pointer, asked in WITH_NUL.items():
        answer = await api.admin.post("/api/v1/executions", json=asked)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await nothing_was_created(api)


async def test_nul_characters_are_refused_everywhere_else(api: Api) -> None:
    assert (await api.admin.post("/api/v1/tokens", json={"name": "\0"})).status_code == 422
    assert (await api.admin.post("/api/v1/packs:install", json={"path": "/a\0b"})).status_code == 422
    assert (await api.stranger.post("/auth/login", json={"login": "\0", "password": "x"})).status_code == 422
    assert (await api.admin.get("/api/v1/actions/a%00b")).status_code == 404
    assert (await api.admin.get("/api/v1/executions?trace_tag=a%00b")).status_code == 400


async def test_parameters_nested_too_deeply_are_refused(api: Api) -> None:
    nested: object = 1
    for _ in range(100):
        nested = [nested]
    answer = await api.admin.post(
        "/api/v1/executions", json={"action_ref": "demo.anything", "parameters": {"x": nested}}
    )
    assert answer.status_code == 422
    assert await nothing_was_created(api)


async def test_a_body_of_ten_mebibytes_is_refused_with_an_answer(api: Api) -> None:
    body = json.dumps({"action_ref": "demo.anything", "parameters": {"x": "y" * 10 * 1024 * 1024}}).encode()
    answer = await api.admin.post("/api/v1/executions", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert await nothing_was_created(api)


async def test_the_limit_of_a_body_is_a_setting(database: Database, tmp_path: Path) -> None:
    async with serving(database, tmp_path, limits=ApiLimits(body_max_bytes=1024)) as api:
        answer = await api.admin.post("/api/v1/tokens", json={"name": "x" * 2000})
        assert answer.status_code == 413


async def test_a_body_that_is_not_declared_as_json_is_refused(api: Api) -> None:
    for headers in ({"Content-Type": "text/plain"}, {}, {"Content-Type": "application/x-www-form-urlencoded"}):
        body = b'{"action_ref": "demo.anything"}'
        answer = await api.admin.post("/api/v1/executions", content=body, headers=headers)
        assert (headers, answer.status_code) == (headers, 415)


async def test_a_wrong_query_is_refused(api: Api) -> None:
    for query in WRONG_QUERIES:
        answer = await api.admin.get(f"/api/v1/executions?{query}")
        assert (query, answer.status_code, answer.json()["code"]) == (query, 400, "bad_query")


async def test_a_route_that_does_not_exist_is_a_problem_too(api: Api) -> None:
    nowhere = await api.admin.get("/api/v1/nowhere")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "no_such_route")
    wrong = await api.admin.delete("/api/v1/executions")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert nowhere.headers["x-request-id"] == nowhere.json()["request_id"]


async def test_the_request_id_is_echoed_if_it_is_sensible(api: Api) -> None:
    kept = await api.admin.get("/api/v1/packs", headers={"X-Request-Id": "mine-1"})
    assert kept.headers["x-request-id"] == "mine-1"
    replaced = await api.admin.get("/api/v1/packs", headers={"X-Request-Id": "a b"})
    assert replaced.headers["x-request-id"] != "a b"


async def test_a_bug_is_answered_without_its_details(api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute("ALTER TABLE worker RENAME COLUMN host TO moved")
    answer = await api.admin.get("/api/v1/workers")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "column" not in answer.text
    assert answer.headers["x-request-id"] == answer.json()["request_id"]


async def test_a_database_that_is_away_is_answered_with_try_again(database_url: str, tmp_path: Path) -> None:
    database = await Database.connect(database_url, size=3)
    async with serving(database, tmp_path) as api:
        await database.close()
        answers = await asyncio.gather(
            api.admin.get("/api/v1/packs"),
            api.stranger.post("/auth/login", json={"login": "admin", "password": "x"}),
        )
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "database_unavailable")] * 2
    assert answers[0].headers["retry-after"] == "1"


async def test_a_client_that_goes_away_in_the_middle_of_its_request_is_no_failure_of_ours(api: Api) -> None:
    host, _, port = api.url.removeprefix("http://").partition(":")
    with capture_logs() as lines:
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                b"POST /api/v1/executions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
                b"Authorization: " + api.admin.headers["Authorization"].encode() + b"\r\nContent-Length: 100\r\n\r\n{"
            )
            await writer.drain()
            # What was sent before is being handled when this is answered, and so is what is cut off after it.
            await api.admin.get("/api/v1/executions")
            writer.transport.abort()
            await api.admin.get("/api/v1/executions")
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert await nothing_was_created(api)
