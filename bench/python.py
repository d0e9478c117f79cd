"""What a Python action costs: cold and as a copy of a warm Python, at every level of isolation, and its environment.

    python -m bench.python [--executions 200]

Runners only: no database and no platform around them. Writes bench/results/python.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import uv

from attune.domain.definitions import Isolation
from attune.runtime.clock import monotonic
from attune.worker.environments.sources import uv_environment
from attune.worker.runners.protocol import Stop
from attune.worker.runtimes.python import SYSTEM_PYTHON
from tests.witness.machine import Machine, a_machine
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt

RESULTS = Path(__file__).parent / "results"
AT_ONCE = 4
SEQUENTIAL = 40
PACKAGES = ("requests", "pyyaml", "jinja2")
# The clock is the same for all processes of a machine.
SCRIPT = "import json, ssl, subprocess, time, urllib.request\n\ndef run(asked):\n    return time.monotonic() - asked\n"

Figures = dict[str, object]


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, keep, show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=200)
    executions = parser.parse_args(arguments).executions
    figures: list[Figures] = []
    for warm in (False, True):
        # The same interpreter at every level, or the levels cannot be compared.
        async with a_machine(fork_server=warm, isolation=Isolation.NONE, python=SYSTEM_PYTHON) as machine:
            machine.write("actions/work.py", SCRIPT, digest=NO_DIGEST)
            for level in machine.equipment.scripts.confinement.walls:
                figures.append(await measure(machine, level, executions, warm=warm))
                print(json.dumps(figures[-1]), flush=True)
    document = {"python": figures, "environment": await measure_environment()}
    print(json.dumps(document["environment"]))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "python.json").write_text(json.dumps(document, indent=2) + "\n")


async def measure(machine: Machine, level: Isolation, executions: int, *, warm: bool) -> Figures:
    """One way of starting: how many per second, and how long until the first line of the author's code."""

    async def one() -> float:
        work = {"runner": "python", "entry_point": "work.py", "parameters": {"asked": monotonic()}}
        attempt = make_attempt(None, isolation=str(level), **work)
        ending = await machine.runners["python"].run(attempt, Printed())
        assert isinstance(ending.result, float), ending  # noqa: S101  a figure of something else is none
        return ending.result

    first = await one()
    begun = monotonic()
    lines = [await one() for _ in range(SEQUENTIAL)]
    sequential = monotonic() - begun
    begun = monotonic()
    left = iter(range(executions))

    async def several() -> None:
        for _ in left:
            await one()

    await asyncio.gather(*(several() for _ in range(AT_ONCE)))
    return {
        "start": "fork server" if warm else "cold",
        "isolation": str(level),
        "per_second": round(executions / (monotonic() - begun), 1),
        "first_line_ms_p50": round(statistics.median(lines) * 1000, 1),
        "first_line_ms_best": round(min(lines) * 1000, 1),
        "first_of_all_ms": round(first * 1000, 1),
        f"sequential_{SEQUENTIAL}_seconds": round(sequential, 2),
    }


async def measure_environment() -> Mapping[str, object]:
    """How long the packages of a lock take: downloaded, from the cache, and when they are there."""
    async with a_machine(os.environ) as machine:
        lock = make_lock(machine)
        machine.write("actions/work.py", SCRIPT, digest=NO_DIGEST)
        seconds = {}
        # A comment makes another lock, and so another environment, of the same packages.
        for name, content in (("cold", lock), ("warm", lock + b"\n# again\n"), ("there", lock)):
            begun = monotonic()
            machine.write("requirements.lock", content, digest=name[0].encode().hex() * 32)
            machine.write("actions/work.py", SCRIPT, digest=name[0].encode().hex() * 32)
            work = {"runner": "python", "entry_point": "work.py", "parameters": {"asked": 0.0}}
            attempt = make_attempt(Stop(), pack_digest=name[0].encode().hex() * 32, **work)
            ending = await machine.runners["python"].run(attempt, Printed())
            assert ending.failure is None, ending  # noqa: S101  a figure of something else is none
            seconds[name] = round(monotonic() - begun, 2)
    return {"packages": PACKAGES, "first_execution_seconds": seconds}


def make_lock(machine: Machine) -> bytes:
    """What uv makes of the packages now."""
    with tempfile.TemporaryDirectory() as folder:
        wishes = Path(folder, "requirements.txt")
        wishes.write_text("\n".join(PACKAGES))
        told = uv_environment(os.environ, cache=Path(folder, "cache"))
        python = str(machine.details["python"]).partition("(")[2].partition(")")[0]
        command = [uv.find_uv_bin(), "pip", "compile", "-q", "--generate-hashes", "--no-header", "--no-annotate"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--only-binary", ":all:", "--python", python]
        done = subprocess.run([*command, str(wishes)], env=told, capture_output=True, check=True)
        return done.stdout


if __name__ == "__main__":
    asyncio.run(main())
