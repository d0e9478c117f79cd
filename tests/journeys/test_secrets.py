"""A canary is sent through the whole platform, on each transport, and must be found nowhere afterwards."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from attune.domain.secrecy.forms import list_forms
from attune.domain.secrecy.sealing import MARKER
from tests.witness.platform import Platform, running_platform
from tests.witness.servers import RabbitMQ
from tests.witness.waiting import until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

SCHEMA = """
parameters:
  type: object
  properties:
    auth: {type: object, properties: {password: {type: string, secret: true}}}
    gate: {type: string}
    large: {type: boolean, default: false}
    fails: {type: boolean, default: false}
"""
SCRIPT = r"""#!/usr/bin/env python3
import base64, json, os, shlex, sys, time, urllib.parse
told = json.load(sys.stdin)
token = os.environ["ATTUNE_API_TOKEN"]
for secret in (told["auth"]["password"], token):
    for stream in (sys.stdout, sys.stderr):
        print("plain", secret, file=stream)
        print("json", json.dumps({"x": secret}), json.dumps(json.dumps(secret)), file=stream)
        print("url", urllib.parse.quote(secret), urllib.parse.quote_plus(secret), file=stream)
        for before in (b"", b"a", b"ab"):
            print("base64", base64.b64encode(before + secret.encode() + b"end").decode(), file=stream)
        print("hex", secret.encode().hex(), file=stream)
        print("shell", shlex.quote(secret), file=stream, flush=True)
while not os.path.exists(told["gate"]):
    time.sleep(0.05)
if told["fails"]:
    sys.exit(secret)
filling = "x" * 2_000_000 if told["large"] else ""
print(json.dumps({"secret": told["auth"]["password"], told["auth"]["password"]: [token], "filling": filling}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A platform, and where its broker keeps what it carries."""

    platform: Platform
    broker: Path | None


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def carrier(request: pytest.FixtureRequest) -> tuple[dict[str, str], Path | None]:
    """What messages travel by: the setting, and where it keeps them if that is not the database."""
    if request.param == "postgres":
        return {}, None
    node: RabbitMQ = request.getfixturevalue("rabbitmq")
    return {"ATTUNE__MESSAGE_QUEUE__URL": request.getfixturevalue("rabbitmq_url")}, node.directory


@pytest.fixture
async def place(carrier: tuple[dict[str, str], Path | None]) -> AsyncIterator[Place]:
    settings, broker = carrier
    async with running_platform(settings=settings) as platform:
        yield Place(platform=platform, broker=broker)


def write_pack(folder: Path) -> Path:
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text("ref: canary\nversion: 1.0.0\n")
    words = "ref: canary.sing\nrunner: shell\nentry_point: sing.py\noutput_format: json\n"
    (folder / "actions/sing.yaml").write_text(words + SCHEMA)
    (folder / "actions/sing.py").write_text(SCRIPT)
    return folder


async def run_all(platform: Platform, http: httpx2.AsyncClient, secret: str, gate: Path) -> list[int]:
    """One that succeeds, one that fails, one with a large result; returns when they have ended."""
    ids = []
    for more in ({}, {"fails": True}, {"large": True}):
        parameters = {"auth": {"password": secret}, "gate": str(gate), **more}
        body = {"action_ref": "canary.sing", "parameters": parameters, "trace_tag": "canary"}
        answer = await http.post("/api/v1/executions", json=body, headers={"Idempotency-Key": str(uuid4())})
        assert answer.status_code == 202, answer.text
        ids.append(int(answer.json()["id"]))

    async def sung() -> bool:
        logs = [(await http.get(f"/api/v1/executions/{number}/logs")).json()["items"] for number in ids]
        return all(logs)

    await until(sung, seconds=90)
    assert list(find_in_processes(secret)) == []
    gate.touch()

    async def ended() -> bool:
        return all([(await http.get(f"/api/v1/executions/{number}")).json()["ended_at"] for number in ids])

    await until(ended, seconds=90)
    refused = {"action_ref": "canary.sing", "parameters": {"auth": {"password": secret}, "gate": 1}}
    assert (await http.post("/api/v1/executions", json=refused)).status_code == 422
    return ids


def find_in_processes(secret: str) -> Iterator[str]:
    """Processes that carry it where others can look."""
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                content = (process / name).read_bytes()
            except OSError:
                continue
            if secret.encode() in content:
                yield f"{process}/{name}"


def find_in_files(folders: Iterable[Path], forms: Iterable[bytes]) -> Iterator[str]:
    """Files that hold any form of it, the database's own included."""
    for folder in folders:
        for directory, _, names in os.walk(folder):
            for name in names:
                path = Path(directory, name)
                try:
                    content = path.read_bytes() if path.is_file() else b""
                except OSError:
                    continue
                yield from (f"{path}: {form!r}" for form in forms if form in content)


async def find_in_tables(url: str, forms: Iterable[bytes]) -> list[str]:
    """Tables that hold any form of it, as text or as bytes."""
    connection = await asyncpg.connect(url)
    found = []
    try:
        names = await connection.fetch("SELECT oid::regclass::text AS name FROM pg_class WHERE relkind = 'r'")
        for name in (row["name"] for row in names):
            for row in await connection.fetch(f"SELECT t::text AS row FROM {name} t"):  # noqa: S608  names of tables
                content = row["row"].encode()
                found += [f"{name}: {form!r}" for form in forms if form in content or form.hex().encode() in content]
    finally:
        await connection.close()
    return found


async def test_a_secret_is_found_nowhere(place: Place, tmp_path: Path) -> None:
    platform = place.platform
    secret = f'canary-{uuid4().hex} it\'s "100%" & é/{uuid4().hex}'
    forms = list_forms(secret)
    await platform.run("pack", "install", str(write_pack(tmp_path / "pack")))
    async with platform.client() as http:
        ids = await run_all(platform, http, secret, tmp_path / "gate")
        views = [(await http.get(f"/api/v1/executions/{number}")).json() for number in ids]
        artifact = views[2]["result"]["artifact"]["id"]
        content = (await http.get(f"/api/v1/artifacts/{artifact}/content")).content

    assert [view["status"] for view in views] == ["succeeded", "failed", "succeeded"]
    assert views[0]["parameters"]["auth"] == {"password": MARKER}
    assert views[0]["result"] == {"secret": MARKER, MARKER: [MARKER], "filling": ""}
    assert MARKER.encode() in content
    told = [await platform.run("execution", "logs", str(ids[0]), check=False)]
    told += [await platform.run("execution", "show", str(number)) for number in ids]
    everything = json.dumps(views).encode() + content + "".join(each.out + each.err for each in told).encode()
    assert [form for form in forms if form in everything] == []

    url = (await platform.run("db", "url")).out.strip()
    assert await find_in_tables(url, forms) == []
    folders = [platform.home, *([place.broker] if place.broker else [])]
    assert await asyncio.to_thread(lambda: list(find_in_files(folders, forms))) == []


async def test_what_looks_for_the_canary_can_find_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"... hunter2 ...")
    forms = list_forms("hunter2")

    assert len(list(find_in_files([tmp_path], forms))) == 1
    process = await asyncio.create_subprocess_exec("sleep", "60", "--", env={"X": "hunter2-in-the-environment"})
    try:
        assert any(str(process.pid) in each for each in find_in_processes("hunter2-in-the-environment"))
    finally:
        process.kill()
        await process.wait()
