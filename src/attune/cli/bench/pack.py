"""The pack that is measured: actions that do nothing, each behind the limit of its workload."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from attune.cli.bench.workloads import PACK, RUNTIMES, Workload

# Nobody is to be refused or to time out, however long the line.
QUEUE_LENGTH_MAX: Final = 10_000_000
QUEUE_SECONDS_MAX: Final = 604_800
PYTHON_FILE: Final = "noop.py"


def warm_up_ref(runtime: str) -> str:
    """The action that wakes everything up before a measurement."""
    return f"{PACK}.warm_up_{runtime}"


def write_pack(folder: Path, workloads: Iterable[Workload], *, ledger: Path) -> None:
    """Write the actions and policies of some workloads; those that run outside the worker note their start."""
    for part in ("actions", "policies"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    _write(folder / "pack.yaml", {"ref": PACK, "version": "1.0.0"})
    (folder / "actions" / PYTHON_FILE).write_text(_python(ledger), encoding="utf-8")
    for runtime in RUNTIMES:
        _write_action(folder, warm_up_ref(runtime), runtime, ledger)
    for workload in workloads:
        for ref in workload.refs:
            _write_action(folder, ref, workload.runtime, ledger)
            if workload.limit is not None:
                _write_policy(folder, ref, workload.limit)


def _python(ledger: Path) -> str:
    """Notes its start as shell actions do."""
    return f"""import os


def run(n: int = 0) -> str:
    noted = os.open({str(ledger)!r}, os.O_WRONLY | os.O_APPEND)
    os.write(noted, f"{{os.environ['ATTUNE_EXECUTION_ID']}} {{os.environ['ATTUNE_ATTEMPT']}}\\n".encode())
    os.close(noted)
    return "hi"
"""


def _write_action(folder: Path, ref: str, runtime: str, ledger: Path) -> None:
    body: dict[str, object] = {"entry_point": "noop"}
    if runtime == "python":
        body = {"entry_point": PYTHON_FILE}
    if runtime == "shell":
        # A line this short is appended whole, and costs no further process.
        body = {"command": f'echo "$ATTUNE_EXECUTION_ID $ATTUNE_ATTEMPT" >> {shlex.quote(str(ledger))}; echo hi'}
    parameters = {"type": "object", "properties": {"n": {"type": "integer"}}}
    # Doing nothing twice does no harm, so what a killed worker ran is tried again instead of given up.
    action = {"ref": ref, "runner": runtime, **body, "parameters": parameters, "idempotent": True}
    _write(_file(folder, "actions", ref), action)


def _write_policy(folder: Path, ref: str, limit: int) -> None:
    policy = {
        "ref": f"{ref}_limit",
        "scope": {"action": ref},
        "concurrency": {"limit": limit},
        "max_queue_length": QUEUE_LENGTH_MAX,
        "queue_timeout_seconds": QUEUE_SECONDS_MAX,
    }
    _write(_file(folder, "policies", ref), policy)


def _file(folder: Path, part: str, ref: str) -> Path:
    return folder / part / f"{ref.partition('.')[2]}.yaml"


def _write(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML.
