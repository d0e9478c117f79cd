"""Actions of every runtime on a whole platform: written as the pages tell, and with packages of their own."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.documents import FENCE, ROOT, shell_lines
from tests.plugins.report import not_run
from tests.witness.node import brought_node
from tests.witness.platform import Platform, running_platform
from tests.witness.wheels import make_tarball, make_wheel, offline

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

PAGES = {runtime: f"write-a-{runtime}-action.md" for runtime in ("python", "node", "shell")}
# A block that begins with its own path is a file; the others are typed.
FILE = re.compile(r"(?:#|//) tools/(\S+)\n")


@pytest.fixture(scope="module")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    """One that finds packages in a folder, and actions where the machine keeps them apart as it can."""
    wheels = tmp_path_factory.mktemp("wheels")
    settings = {**offline(wheels), "ATTUNE__WORKER__ISOLATION": "auto", "WHEELS": str(wheels)}
    if node := await brought_node():
        settings["ATTUNE__WORKER__NODE"] = str(node)
    async with running_platform(settings=settings) as running:
        yield running


def write_pages(folder: Path) -> dict[str, list[str]]:
    """The files of all pages as one pack, and the lines that each page lets people type."""
    typed: dict[str, list[str]] = {}
    for runtime, name in PAGES.items():
        for block in FENCE.finditer((ROOT / "docs" / "how-to" / name).read_text()):
            body = block["body"]
            if named := FILE.match(body):
                path = folder / named[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                # The path is no part of a script, whose first line names its interpreter.
                path.write_text(body[named.end() :])
            elif block["language"] == "sh":
                lines = [line for line in shell_lines(body) if line.startswith("./attune run")]
                typed.setdefault(runtime, []).extend(lines)
    return typed


async def test_every_page_about_writing_actions_works(platform: Platform) -> None:
    folder = platform.home / "tools"
    typed = write_pages(folder)
    await platform.run("pack", "install", str(folder))
    worker = json.loads((await platform.run("worker", "show", "worker-1", "-o", "json")).out)
    results = {}
    for runtime, lines in typed.items():
        if runtime not in worker["runtimes"]:
            not_run(worker["runtime_details"][runtime], cure=f"install {runtime}")
        for line in lines:
            words = shlex.split(line)[1:]
            answer = await platform.run(*words, "-o", "json")
            results[words[1]] = json.loads(answer.out)["result"]
    assert results["tools.greet"] == {"greeting": "Hello Ada! Hello Ada! "}
    assert results["tools.count"] == {"words": 3}
    assert set(results["tools.disk"]) == {"used"}
    assert results["tools.archive"]["bytes"] > 0


async def test_packs_with_conflicting_packages_run_at_once(platform: Platform) -> None:
    wheels = Path(platform.environment["WHEELS"])
    for pack, version in (("older", "1.0.0"), ("newer", "2.0.0")):
        folder = platform.home / pack
        write_pack(folder, pack, version, wheels)
        await platform.run("pack", "install", str(folder))
    refs = [f"{pack}.{runtime}" for pack in ("older", "newer") for runtime in ("python", "node")]
    async with platform.client() as client:
        answers = await asyncio.gather(
            *(
                client.post(
                    "/api/v1/executions", params={"wait": 60}, json={"action_ref": ref, "parameters": {}}, timeout=90
                )
                for ref in refs * 2
            )
        )
    results = [(answer.json()["action_ref"], answer.json()["result"]) for answer in answers]
    wanted = {"older": "1.0.0", "newer": "2.0.0"}
    assert results == [(ref, wanted[ref.partition(".")[0]]) for ref in refs * 2]


def write_pack(folder: Path, pack: str, version: str, wheels: Path) -> None:
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text(f"ref: {pack}\nversion: 1.0.0\n")
    (folder / "requirements.lock").write_text(
        make_wheel(wheels, "shared", version, {"shared.py": f"VERSION = '{version}'\n"})
    )
    (folder / "actions" / "ask.py").write_text("import shared\n\ndef run():\n    return shared.VERSION\n")
    (folder / "actions" / "python.yaml").write_text(f"ref: {pack}.python\nrunner: python\nentry_point: ask.py\n")
    source = "file:vendor/shared.tgz"
    integrity = make_tarball(folder / "vendor" / "shared.tgz", "shared", version, f"module.exports = '{version}'\n")
    (folder / "package.json").write_text(json.dumps({"dependencies": {"shared": source}}))
    package = {"version": version, "resolved": source, "integrity": integrity}
    lock = {
        "lockfileVersion": 3,
        "packages": {"": {"dependencies": {"shared": source}}, "node_modules/shared": package},
    }
    (folder / "package-lock.json").write_text(json.dumps(lock))
    (folder / "actions" / "ask.js").write_text("console.log(JSON.stringify(require('shared')))\n")
    (folder / "actions" / "node.yaml").write_text(
        f"ref: {pack}.node\nrunner: node\nentry_point: ask.js\noutput_format: json\n"
    )


async def test_a_worker_says_which_interpreters_it_found(platform: Platform) -> None:
    shown = (await platform.run("worker", "show", "worker-1")).out
    assert re.search(r"runtime_details: .*python.*3\.\d+\.\d+ \(/", shown)
