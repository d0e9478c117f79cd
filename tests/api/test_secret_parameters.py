"""Secrets come in and never go out again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.domain.secrecy.sealing import MARKER
from attune.operations.access.seal_parameters import open_parameters
from attune.runtime.keys import SealBroken
from attune.runtime.vault import Vault
from attune.storage.database import Database
from tests.api.running import Api, serving
from tests.witness.arrange import make_action

SECRET = "correct-horse-battery"
SCHEMA = {
    "type": "object",
    "properties": {
        "login": {"type": "string"},
        "password": {"type": "string", "secret": True, "minLength": 8, "pattern": "^[a-z-]+$"},
        "keys": {"type": "array", "items": {"type": "object", "properties": {"key": {"secret": True}}}},
    },
    "additionalProperties": False,
}
VAULT = Vault(b"v" * 32)


@pytest.fixture
async def guarded(database: Database, tmp_path: Path) -> AsyncIterator[Api]:
    """An API that has the key, and an action that wants secrets."""
    await make_action(database, "demo.login", parameters=SCHEMA)
    async with serving(database, tmp_path / "packs", vault=VAULT) as served:
        yield served


async def everything(database: Database) -> str:
    async with database.reading() as tx:
        names = await tx.fetch_column(
            "SELECT relname FROM pg_class WHERE relnamespace = 'attune'::regnamespace AND relkind = 'r'"
        )
        return "\n".join(
            [
                text
                for name in names
                for text in await tx.fetch_column(f'SELECT t::text FROM attune."{name}" t')  # noqa: S608  our own names
            ]
        )


async def test_a_secret_is_shown_as_a_marker_everywhere(guarded: Api, database: Database) -> None:
    sent = {"login": "me", "password": SECRET, "keys": [{"key": {"deep": SECRET}}, {}]}
    shown = {"login": "me", "password": MARKER, "keys": [{"key": MARKER}, {}]}

    answer = await guarded.admin.post("/api/v1/executions", json={"action_ref": "demo.login", "parameters": sent})

    assert answer.status_code == 202, answer.text
    assert answer.json()["parameters"] == shown
    number = answer.json()["id"]
    for path in ("", "/why", "/history", "/logs", "/children"):
        told = await guarded.admin.get(f"/api/v1/executions/{number}{path}")
        assert told.status_code == 200
        assert SECRET not in told.text
    assert (await guarded.admin.get(f"/api/v1/executions/{number}")).json()["parameters"] == shown
    assert SECRET not in await everything(database)


async def test_what_is_sealed_opens_for_its_execution_only(guarded: Api, database: Database) -> None:
    body = {"action_ref": "demo.login", "parameters": {"password": SECRET}}
    number = (await guarded.admin.post("/api/v1/executions", json=body)).json()["id"]
    async with database.reading() as tx:
        sealed = await tx.fetch_value("SELECT sealed FROM sealed_parameters WHERE execution_id = $1", number)

    (taken,) = open_parameters(VAULT, number, sealed)

    assert (taken.path, taken.value) == (("password",), SECRET)
    with pytest.raises(SealBroken):
        open_parameters(VAULT, number + 1, sealed)
    with pytest.raises(SealBroken):
        open_parameters(Vault(b"w" * 32), number, sealed)


@pytest.mark.parametrize(
    "parameters",
    [
        {"password": "SECRETSECRET1"},
        {"password": "SECRET"},
        {"password": {"inner": "SECRETSECRET1"}},
        {"password": ["SECRETSECRET1"]},
        {"login": 1, "password": "SECRETSECRET1"},
        {"keys": "SECRETSECRET1"},
    ],
)
async def test_a_refusal_does_not_repeat_the_secret(guarded: Api, parameters: dict[str, object]) -> None:
    answer = await guarded.admin.post("/api/v1/executions", json={"action_ref": "demo.login", "parameters": parameters})

    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_parameters"
    assert "SECRET" not in answer.text


async def test_a_repeated_request_is_recognised_without_keeping_its_body(guarded: Api, database: Database) -> None:
    body = {"action_ref": "demo.login", "parameters": {"password": SECRET}}
    key = {"Idempotency-Key": "once"}
    first = await guarded.admin.post("/api/v1/executions", json=body, headers=key)

    again = await guarded.admin.post("/api/v1/executions", json=body, headers=key)
    other = {**body, "parameters": {"password": "another-password"}}
    mismatch = await guarded.admin.post("/api/v1/executions", json=other, headers=key)

    assert again.json()["id"] == first.json()["id"]
    assert (mismatch.status_code, mismatch.json()["code"]) == (422, "idempotency_mismatch")
    assert SECRET not in await everything(database)


async def test_each_of_a_batch_keeps_its_own_secret(guarded: Api, database: Database) -> None:
    wanted = [{"action_ref": "demo.login", "parameters": {"password": f"password-{letter}"}} for letter in "abc"]
    answer = await guarded.admin.post("/api/v1/executions:batch", json={"executions": wanted})

    ids = [each["id"] for each in answer.json()["executions"]]
    async with database.reading() as tx:
        rows = await tx.fetch("SELECT execution_id, sealed FROM sealed_parameters ORDER BY execution_id")
    opened = [open_parameters(VAULT, row["execution_id"], row["sealed"])[0].value for row in rows]
    assert [row["execution_id"] for row in rows] == ids
    assert opened == ["password-a", "password-b", "password-c"]


async def test_the_marker_is_not_taken_for_a_secret(guarded: Api) -> None:
    body = {"action_ref": "demo.login", "parameters": {"keys": [{"key": MARKER}]}}

    answer = await guarded.admin.post("/api/v1/executions", json=body)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/parameters/keys/0/key"


async def test_an_api_without_the_key_takes_no_secrets(database: Database, tmp_path: Path) -> None:
    await make_action(database, "demo.login", parameters=SCHEMA)
    async with serving(database, tmp_path / "packs") as keyless:
        body = {"action_ref": "demo.login", "parameters": {"password": SECRET}}
        refused = await keyless.admin.post("/api/v1/executions", json=body)
        plain = {"action_ref": "demo.login", "parameters": {"login": "me"}}
        accepted = await keyless.admin.post("/api/v1/executions", json=plain)

    assert (refused.status_code, refused.json()["code"]) == (503, "no_key")
    assert accepted.status_code == 202


async def test_no_line_is_grouped_by_a_secret(guarded: Api) -> None:
    policy = {"ref": "demo.limit", "scope": {"action": "demo.login"}}
    secret = {**policy, "concurrency": {"limit": 1, "parameters": ["login", "password"]}}

    refused = await guarded.admin.post("/api/v1/policies", json=secret)
    accepted = await guarded.admin.post(
        "/api/v1/policies", json={**policy, "concurrency": {"limit": 1, "parameters": ["login"]}}
    )
    changed = await guarded.admin.patch(
        "/api/v1/policies/demo.limit", json={"concurrency": {"limit": 1, "parameters": ["password"]}}
    )

    assert (refused.status_code, refused.json()["code"]) == (422, "secret_group")
    assert accepted.status_code == 201, accepted.text
    assert (changed.status_code, changed.json()["code"]) == (422, "secret_group")
