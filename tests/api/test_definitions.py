"""Packs, actions and policies through the API and by installing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attune.domain.definition_documents import action_from_mapping, policy_from_mapping
from attune.domain.definitions import PackDefinition
from attune.domain.errors import Invalid
from attune.operations.install_pack import Installed, install_pack
from attune.storage.database import Database
from tests.api.running import TESTER, Api

HELLO = Path(__file__).resolve().parents[2] / "packs" / "examples" / "hello"


def action(name: str) -> dict[str, object]:
    return {"ref": f"demo.{name}", "runner": "shell", "command": "true"}


def pack(*names: str, policies: bool = True) -> PackDefinition:
    actions = tuple(action_from_mapping(action(name)) for name in names)
    limits = tuple(
        policy_from_mapping(
            {"ref": f"demo.{name}_limit", "scope": {"action": f"demo.{name}"}, "concurrency": {"limit": 2}}
        )
        for name in names
        if policies
    )
    return PackDefinition(ref="demo", version="1.0.0", actions=actions, policies=limits)


async def install(database: Database, wanted: PackDefinition, digest: str) -> Installed:
    async with database.transaction() as tx:
        return await install_pack(tx, wanted, digest=digest * 64, source="test", by=TESTER)


async def action_ids(database: Database) -> dict[str, int]:
    async with database.reading() as tx:
        return {row["ref"]: row["id"] for row in await tx.fetch("SELECT ref, id FROM action")}


async def test_an_upgrade_keeps_ids_and_removes_what_vanished(database: Database) -> None:
    await install(database, pack("a", "b"), "1")
    before = await action_ids(database)
    upgraded = await install(database, replace(pack("b", "c"), version="2.0.0"), "2")
    after = await action_ids(database)
    assert set(after) == {"demo.b", "demo.c"}
    assert after["demo.b"] == before["demo.b"]
    assert upgraded.removed == ("demo.a", "demo.a_limit")


async def test_installing_the_same_content_again_changes_nothing(database: Database) -> None:
    assert (await install(database, pack("a"), "1")).changed
    assert not (await install(database, pack("a"), "1")).changed


async def test_an_upgrade_leaves_alone_what_was_created_through_the_api(api: Api) -> None:
    assert (await api.admin.post("/api/v1/actions", json=action("made"))).status_code == 201
    await install(api.database, pack("a"), "1")
    assert set(await action_ids(api.database)) == {"demo.a", "demo.made"}


async def test_an_install_is_heard_by_those_who_keep_a_copy(database: Database) -> None:
    await install(database, pack("a"), "1")
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT revision FROM revision WHERE entity = 'pack'") == 1


async def test_a_folder_is_installed_and_listed(api: Api) -> None:
    answer = await api.admin.post("/api/v1/packs:install", json={"path": str(HELLO)})
    assert (answer.status_code, answer.json()["changed"]) == (200, True)
    again = await api.admin.post("/api/v1/packs:install", json={"path": str(HELLO)})
    assert again.json()["changed"] is False
    refs = [each["ref"] for each in (await api.admin.get("/api/v1/actions", params={"pack": "hello"})).json()["items"]]
    assert refs == ["hello.greet"]
    assert "hello" in [each["ref"] for each in (await api.admin.get("/api/v1/packs")).json()["items"]]


async def test_a_bad_folder_is_refused_with_every_reason(api: Api, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "pack.yaml").write_text("ref: Bad Name\n")
    answer = await api.admin.post("/api/v1/packs:install", json={"path": str(bad)})
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_pack")
    assert "pack.yaml:1:" in answer.json()["detail"]
    relative = await api.admin.post("/api/v1/packs:install", json={"path": "packs/hello"})
    assert relative.status_code == 422


async def test_a_created_action_can_be_read_and_run(api: Api) -> None:
    assert (await api.admin.post("/api/v1/packs", json={"ref": "mine", "version": "1.0.0"})).status_code == 201
    made = await api.admin.post("/api/v1/actions", json={**action("x"), "ref": "mine.x"})
    assert (made.status_code, made.json()["adhoc"], made.json()["pack"]) == (201, True, "mine")
    assert (await api.admin.get("/api/v1/actions/mine.x")).json() == made.json()
    assert (await api.admin.post("/api/v1/executions", json={"action_ref": "mine.x"})).status_code == 202


async def test_creating_what_exists_is_a_conflict(api: Api) -> None:
    assert (await api.admin.post("/api/v1/actions", json=action("count"))).status_code == 409
    assert (await api.admin.post("/api/v1/packs", json={"ref": "demo", "version": "1.0.0"})).status_code == 409


async def test_an_action_needs_a_pack_that_exists(api: Api) -> None:
    answer = await api.admin.post("/api/v1/actions", json={**action("x"), "ref": "demoo.x"})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_pack")
    assert "did you mean 'demo'?" in answer.json()["detail"]


async def test_an_unknown_definition_is_answered_with_the_nearest_name(api: Api) -> None:
    answer = await api.admin.get("/api/v1/actions/demo.cuont")
    assert answer.status_code == 404
    assert "did you mean 'demo.count'?" in answer.json()["detail"]


async def test_a_policy_is_changed_in_part(api: Api) -> None:
    policy = {
        "ref": "demo.limit",
        "scope": {"action": "demo.count"},
        "concurrency": {"limit": 2, "parameters": ["host"]},
        "rate_limit": {"max": 10, "window_seconds": 1},
        "queue_timeout_seconds": 60,
    }
    made = await api.admin.post("/api/v1/policies", json=policy)
    assert made.status_code == 201
    patch = {"concurrency": {"limit": 3}, "rate_limit": None}
    changed = (await api.admin.patch("/api/v1/policies/demo.limit", json=patch)).json()
    assert changed["concurrency"] == {"limit": 3, "method": "enqueue", "parameters": ["host"]}
    assert "rate_limit" not in changed
    assert (changed["id"], changed["scope"], changed["queue_timeout_seconds"], changed["revision"]) == (
        made.json()["id"],
        {"action": "demo.count"},
        60,
        2,
    )


async def test_a_patch_that_breaks_a_policy_is_refused_and_changes_nothing(api: Api) -> None:
    policy = {"ref": "demo.limit", "scope": {"action": "demo.count"}, "concurrency": {"limit": 2}}
    made = (await api.admin.post("/api/v1/policies", json=policy)).json()
    for patch in ({"concurrency": {"limit": 0}}, {"concurrency": None}, {"ref": "demo.other"}, {"limit": 1}):
        assert (await api.admin.patch("/api/v1/policies/demo.limit", json=patch)).status_code == 422
    assert (await api.admin.get("/api/v1/policies/demo.limit")).json() == made


async def test_a_policy_about_nothing_is_refused_and_nothing_is_installed(database: Database) -> None:
    broken = replace(pack("a"), policies=pack("b").policies)
    with pytest.raises(Invalid, match=r"demo\.b"):
        await install(database, broken, "1")
    assert await action_ids(database) == {}
