"""Who is let in, what they may do, and that what they did is on record."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar, get

from attune.api.app import UndeclaredRoute, all_endpoints, check_declarations, create_app, refuse_undeclared
from attune.api.auth import FREE_ATTEMPTS, LOGINS_MAX, LoginThrottle
from attune.api.endpoint import AnyEndpoint, Public
from attune.api.errors import Throttled
from attune.api.parts import ApiParts
from attune.domain.messages import Message
from attune.domain.permission import parse_permission
from attune.operations.access.bootstrap_admin import bootstrap_admin
from attune.operations.access.verify_key import WrongKey, verify_key
from attune.runtime.clock import utc_now
from attune.runtime.metrics import build_metrics
from attune.storage import dead_letters
from attune.storage.database import Database
from tests.api.running import PASSWORD, TESTER, Api, client
from tests.witness.arrange import make_worker

ENDPOINTS = all_endpoints(version="0")
MUTATING = [each for each in ENDPOINTS if each.mutates and not isinstance(each.permission, Public)]
PROTECTED = [each for each in ENDPOINTS if not isinstance(each.permission, Public)]
PUBLIC_PATHS = {"/healthz", "/readyz", "/auth/login", "/docs", "/docs/{name}"}

PACK = Path(__file__).resolve().parents[2] / "packs" / "examples" / "hello"
POLICY = {"ref": "demo.limit", "scope": {"action": "demo.anything"}, "concurrency": {"limit": 2}}
# What to send so that a route changes something.
SAMPLES: dict[str, Any] = {
    "create_execution": {"action_ref": "demo.anything"},
    "create_executions": {"executions": [{"action_ref": "demo.anything"}, {"action_ref": "demo.anything"}]},
    "cancel_execution": None,
    "create_pack": {"ref": "fresh", "version": "1.0.0"},
    "install_pack": {"path": str(PACK)},
    "create_action": {"ref": "demo.made", "runner": "shell", "command": "true"},
    "create_policy": {**POLICY, "ref": "demo.other"},
    "change_policy": {"concurrency": {"limit": 3}},
    "log_in": {"login": "admin", "password": PASSWORD},
    "create_token": {"name": "x"},
    "revoke_token": None,
    "pause_line": None,
    "resume_line": None,
    "clear_line": None,
    "clear_all_lines": None,
    "replay_dead_letter": None,
    "drop_dead_letter": None,
    "replay_dead_letters": None,
    "drop_dead_letters": None,
    "release_action": None,
    "cordon_worker": None,
    "uncordon_worker": None,
    "drain_worker": None,
}


def path_of(endpoint: AnyEndpoint, ids: Mapping[str, object]) -> str:
    some = {name: 1 if name.endswith("_id") else "x" for name in re.findall(r"{(\w+)}", endpoint.path)}
    return endpoint.path.format(**{**some, **ids})


async def park_message(database: Database) -> int:
    moment = utc_now()
    message = Message(
        id=1,
        topic="pool.changed",
        type="pool.changed",
        items=((7, 0),),
        deliveries=5,
        created=moment,
        not_before=moment,
    )
    async with database.transaction() as tx:
        return await dead_letters.insert(tx, message, reason="invalid", error="bug")


async def test_nobody_gets_in_without_a_token(api: Api) -> None:
    for endpoint in PROTECTED:
        answer = await api.stranger.request(endpoint.method, path_of(endpoint, {}))
        assert (endpoint.name, answer.status_code) == (endpoint.name, 401)
        assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_viewer_changes_nothing(api: Api) -> None:
    for endpoint in MUTATING:
        answer = await api.viewer.request(endpoint.method, path_of(endpoint, {}), json=SAMPLES[endpoint.name])
        assert (endpoint.name, answer.status_code, answer.json()["code"]) == (endpoint.name, 403, "forbidden")


async def test_a_viewer_may_look_at_everything(api: Api) -> None:
    for endpoint in PROTECTED:
        if not endpoint.mutates:
            answer = await api.viewer.get(path_of(endpoint, {}))
            assert answer.status_code in {200, 404}, endpoint.name


def test_only_the_agreed_routes_are_public() -> None:
    assert {each.path for each in ENDPOINTS if isinstance(each.permission, Public)} == PUBLIC_PATHS


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if each.mutates], ids=lambda each: each.name)
async def test_every_change_leaves_one_line_in_the_audit_log(api: Api, endpoint: AnyEndpoint) -> None:
    execution = (await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"})).json()
    token = (await api.admin.post("/api/v1/tokens", json={"name": "old"})).json()
    await api.admin.post("/api/v1/policies", json=POLICY)
    line = (await api.admin.post("/api/v1/executions", json={"action_ref": "demo.anything"})).json()["line"]["id"]
    if endpoint.name == "resume_line":
        await api.admin.post(f"/api/v1/lines/{line}/pause")
    ids = {"execution_id": execution["id"], "token_id": token["id"], "ref": "demo.limit", "line_id": line}
    if endpoint.name == "release_action":
        ids["ref"] = "demo.anything"
        async with api.database.transaction() as tx:
            await tx.execute("UPDATE action SET quarantined_at = now() WHERE ref = 'demo.anything'")
    ids["dead_letter_id"] = await park_message(api.database)
    ids["worker_id"] = (await make_worker(api.database)).worker_id
    if endpoint.name == "uncordon_worker":
        await api.admin.post(f"/api/v1/workers/{ids['worker_id']}/cordon")
    path = path_of(endpoint, ids)
    before = (await api.admin.get("/api/v1/audit")).json()["items"]
    answer = await api.admin.request(
        endpoint.method, path, json=SAMPLES[endpoint.name], headers={"X-Request-Id": "audited"}
    )
    assert answer.is_success, answer.text
    after = (await api.admin.get("/api/v1/audit")).json()["items"]
    assert len(after) == len(before) + 1
    assert (after[0]["actor"], after[0]["request_id"]) == ("admin", "audited")
    assert "secret" not in str(after[0]["detail"])


async def test_a_refused_change_leaves_no_line_in_the_audit_log(api: Api) -> None:
    before = (await api.admin.get("/api/v1/audit")).json()["items"]
    await api.admin.post("/api/v1/executions", json={"action_ref": "demo.nothing"})
    await api.admin.post("/api/v1/policies", json={**POLICY, "scope": {"action": "demo.nothing"}})
    assert (await api.admin.get("/api/v1/audit")).json()["items"] == before


async def test_a_password_gives_a_token_that_works(api: Api) -> None:
    answer = await api.stranger.post("/auth/login", json={"login": "admin", "password": PASSWORD})
    assert answer.status_code == 200
    async with client(api.url, answer.json()["token"]) as person:
        assert (await person.get("/api/v1/executions")).status_code == 200


async def test_a_wrong_login_does_not_say_what_was_wrong(api: Api) -> None:
    for login in ("admin", "nobody"):
        answer = await api.stranger.post("/auth/login", json={"login": login, "password": "guess"})
        assert (answer.status_code, answer.json()["code"]) == (401, "bad_login")


async def test_guessing_passwords_is_slowed_down(api: Api) -> None:
    guesses = [api.stranger.post("/auth/login", json={"login": "admin", "password": "guess"}) for _ in range(12)]
    statuses = [answer.status_code for answer in await asyncio.gather(*guesses)]
    assert statuses.count(401) <= FREE_ATTEMPTS
    assert 429 in statuses


def test_the_pause_between_guesses_grows_and_ends() -> None:
    now = [0.0]
    throttle = LoginThrottle(lambda: now[0])
    for _ in range(FREE_ATTEMPTS):
        throttle.begin("x")
    with pytest.raises(Throttled):
        throttle.begin("x")
    now[0] += 1.0
    throttle.begin("x")
    now[0] += 1.0
    with pytest.raises(Throttled):
        throttle.begin("x")
    throttle.succeeded("x")
    throttle.begin("x")


def test_remembering_logins_is_bounded() -> None:
    throttle = LoginThrottle(lambda: 0.0)
    for number in range(LOGINS_MAX + 10):
        throttle.begin(str(number))
    assert len(throttle._tries) == LOGINS_MAX


async def test_revoking_a_token_works_at_once(api: Api) -> None:
    made = (await api.admin.post("/api/v1/tokens", json={"name": "short"})).json()
    async with client(api.url, made["secret"]) as program:
        assert (await program.get("/api/v1/packs")).status_code == 200
        assert (await api.admin.delete(f"/api/v1/tokens/{made['id']}")).status_code == 204
        assert (await program.get("/api/v1/packs")).status_code == 401


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE identity SET enabled = false",
        "UPDATE identity SET epoch = epoch + 1",
        "UPDATE token SET expires_at = now() - interval '1 second'",
    ],
)
async def test_a_token_ends_with_its_identity_its_epoch_and_its_time(api: Api, statement: str) -> None:
    async with api.database.transaction() as tx:
        await tx.execute(statement)
    assert (await api.admin.get("/api/v1/packs")).status_code == 401


async def test_a_secret_is_shown_once_and_stored_nowhere(api: Api) -> None:
    made = (await api.admin.post("/api/v1/tokens", json={"name": "x"})).json()
    assert made["secret"].startswith("att_")
    listed = await api.admin.get("/api/v1/tokens")
    assert "secret" not in listed.text
    async with api.database.reading() as tx:
        stored = await tx.fetch("SELECT t::text FROM token t")
    assert made["secret"] not in str(stored)


async def test_a_narrowed_token_begets_only_narrowed_tokens(api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute(
            """
            INSERT INTO permission_set (ref, grants)
            VALUES ('minter', '[{"resource": "tokens", "actions": ["create", "read"]}]')
            """
        )
    made = (await api.admin.post("/api/v1/tokens", json={"name": "m", "permission_set": "minter"})).json()
    async with client(api.url, made["secret"]) as minter:
        child = await minter.post("/api/v1/tokens", json={"name": "child"})
        assert child.json()["permission_set"] == "minter"
        wider = await minter.post("/api/v1/tokens", json={"name": "wide", "permission_set": "admin"})
        assert wider.status_code == 403


async def test_pinning_and_priority_have_permissions_of_their_own(api: Api) -> None:
    async with api.database.transaction() as tx:
        await tx.execute(
            """
            INSERT INTO permission_set (ref, grants)
            VALUES ('runner', '[{"resource": "executions", "actions": ["create"]}]')
            """
        )
    made = (await api.admin.post("/api/v1/tokens", json={"name": "r", "permission_set": "runner"})).json()
    async with client(api.url, made["secret"]) as runner:
        plain = {"action_ref": "demo.anything"}
        assert (await runner.post("/api/v1/executions", json=plain)).status_code == 202
        assert (await runner.post("/api/v1/executions", json={**plain, "priority": 1})).status_code == 403
        assert (await runner.post("/api/v1/executions", json={**plain, "worker_id": 1})).status_code == 403
    assert (await api.admin.post("/api/v1/executions", json={**plain, "worker_id": 1})).json()["worker"] == 1


async def test_an_unknown_permission_set_is_named(api: Api) -> None:
    answer = await api.admin.post("/api/v1/tokens", json={"name": "x", "permission_set": "viewr"})
    assert answer.status_code == 422
    assert "did you mean 'viewer'" in answer.json()["detail"]


def test_a_route_without_a_permission_keeps_the_application_from_starting() -> None:
    bare = replace(ENDPOINTS[0], permission=None)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(UndeclaredRoute, match="permission"):
        check_declarations([bare])


def test_a_route_without_a_scope_keeps_the_application_from_starting() -> None:
    bare = replace(ENDPOINTS[0], scope=None)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(UndeclaredRoute, match="scope"):
        check_declarations([bare])


def test_a_change_cannot_be_declared_as_reading() -> None:
    with pytest.raises(UndeclaredRoute, match="executions:read"):
        check_declarations([replace(MUTATING[0], permission=parse_permission("executions:read"))])


def test_a_route_added_past_the_declarations_is_refused() -> None:
    @get("/back-door", sync_to_thread=False)
    def back_door() -> str:
        return "open"

    with pytest.raises(UndeclaredRoute, match="back-door"):
        refuse_undeclared(Litestar([back_door], openapi_config=None))


async def test_every_declared_route_is_served(database: Database, tmp_path: Path) -> None:
    parts = ApiParts(
        database=database, metrics=build_metrics(version="0", service="api"), version="0", pack_store=tmp_path
    )
    served = {route.path.replace(":str", "") for route in create_app(parts).routes}
    assert served == {endpoint.path for endpoint in ENDPOINTS}


async def test_there_is_one_first_administrator(database: Database) -> None:
    async def race() -> object:
        async with database.transaction() as tx:
            return await bootstrap_admin(tx, login="admin", password_hash="x", token_name="cli", by=TESTER)

    made = await asyncio.gather(*(race() for _ in range(5)))
    assert len([each for each in made if each is not None]) == 1


async def test_the_key_file_must_belong_to_the_database(database: Database) -> None:
    async with database.transaction() as tx:
        await verify_key(tx, b"a" * 32)
    async with database.transaction() as tx:
        await verify_key(tx, b"a" * 32)
        with pytest.raises(WrongKey, match="does not belong to this database"):
            await verify_key(tx, b"b" * 32)
