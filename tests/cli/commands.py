"""Runs the real command line in processes of its own, in a home that is gone afterwards."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from attune.cli.platform.processes import wait_until

COMMAND = (sys.executable, "-P", "-m", "attune.cli.main")
SECONDS_MAX = 60.0


def clean_environment(home: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a person who never set anything of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE")}
    return {**kept, "ATTUNE_HOME": str(home), "NO_COLOR": "1", **(more or {})}


def attune(
    *words: str, home: Path, more: Mapping[str, str] | None = None, seconds_max: float = SECONDS_MAX
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words],
        env=clean_environment(home, more),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=seconds_max,
    )


def wait_for(holds: Callable[[], bool], *, what: str, seconds_max: float = 20.0) -> None:
    """Look again and again until it is so; fails by name if it never is."""
    assert wait_until(holds, seconds_max=seconds_max), f"not within {seconds_max:g} s: {what}"
