"""`make bench`: runs `attune bench`, and keeps its document, a table and a plot in bench/results.

    python -m bench.run [--transport rabbitmq] [whatever `attune bench` takes]

With `--transport rabbitmq` and no `--url` a RabbitMQ of our own is started, and gone afterwards.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from tests.witness.servers import start_rabbitmq

Document = dict[str, Any]

RESULTS = Path(__file__).parent / "results"
BAR_WIDTH = 50


async def main(arguments: Sequence[str]) -> int:
    """Measure, keep, show."""
    async with broker_options(arguments) as more:
        code, document = await measure([*arguments, *more])
    if not document:
        return code
    transport = document["workloads"][0]["transport"] if document["workloads"] else "postgres"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{transport}.json").write_text(json.dumps(document, indent=2) + "\n")
    page = "\n".join([*draw_speeds(document), "", *draw_ratios(document), ""])
    (RESULTS / f"{transport}.txt").write_text(page)
    print(page)
    return code


@asynccontextmanager
async def broker_options(arguments: Sequence[str]) -> AsyncIterator[list[str]]:
    """Options that name a broker, if one is wanted and none is named."""
    named = any(word.partition("=")[0] == "--url" for word in arguments)
    if "rabbitmq" not in " ".join(arguments) or named:
        yield []
        return
    async with start_rabbitmq() as broker:
        yield ["--url", broker.url()]


async def measure(arguments: Sequence[str]) -> tuple[int, Document]:
    """Run the command; its exit code, and its document if it got that far."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "attune.cli.main", "bench", *arguments, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C reaches it through us, and once.
        start_new_session=True,
    )
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.wait()
        raise
    return process.returncode or 0, json.loads(out) if out else {}


def draw_speeds(document: Document) -> list[str]:
    """A bar for each workload, batched above one by one."""
    rows = document["workloads"]
    fastest = max((number(row, "per_second") for row in rows), default=1.0)
    lines = ["executions per second (= batched, - one by one)", ""]
    for row in rows:
        low, high = row["per_second_range"] if isinstance(row["per_second_range"], list) else (0, 0)
        broken = sum(number(row, name) for name in ("inversions", "over_limit", "lost", "duplicated"))
        bar = "=" * round(number(row, "per_second") / fastest * BAR_WIDTH)
        verdict = f"  BROKEN {broken:.0f} times" if broken else ""
        lines.append(f"{title(row):<28} {number(row, 'per_second'):>9,.0f}  {bar}  {low:,.0f} to {high:,.0f}{verdict}")
        if row["one_by_one_per_second"] is not None:
            singly = number(row, "one_by_one_per_second")
            lines.append(f"{'':<28} {singly:>9,.0f}  {'-' * round(singly / fastest * BAR_WIDTH)}")
    return lines


def draw_ratios(document: Document) -> list[str]:
    """Figures of the run against each other."""
    return [f"{name:<50} {value:>6}" for name, value in document["ratios"].items()]


def title(row: dict[str, object]) -> str:
    """A row's name and what sets it apart."""
    more = f" like {row['like']}, {row['executors']} executors" if row["like"] else ""
    more += f" at {row['backlog']:,} waiting" if row["backlog"] else ""
    return f"{row['name']} {row['runtime']}{more}"


def number(row: dict[str, object], key: str) -> float:
    """A figure of a row; nothing counts as none."""
    value = row[key]
    return float(value) if isinstance(value, int | float) else 0.0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(130)
