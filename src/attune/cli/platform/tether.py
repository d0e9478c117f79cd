"""Ties a service to its supervisor: when that one dies, however it dies, the service ends too."""

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Final

from attune.cli.platform.processes import SUPERVISOR_VARIABLE

_PR_SET_PDEATHSIG: Final = 1
# A service that does not end by itself within its grace is past saving.
MARGIN_SECONDS: Final = 5.0


def supervisor_of(environment: Mapping[str, str]) -> int | None:
    """The process that supervises us; None if we were started by hand."""
    text = environment.get(SUPERVISOR_VARIABLE, "")
    return int(text) if text.isdigit() else None


def tie(supervisor: int, *, grace_seconds: float) -> None:
    """End gracefully when the supervisor dies, and at once if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    # It may have died before the kernel was told: then nobody would ever tell us.
    if os.getppid() != supervisor:
        raise SystemExit(0)
    watcher = threading.Thread(target=_outlive, args=(supervisor, grace_seconds), name="tether", daemon=True)
    watcher.start()


def wait_for_end(pid: int) -> None:
    """Block until a process, usually our parent, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
    finally:
        os.close(descriptor)


def _outlive(supervisor: int, grace_seconds: float) -> None:
    """Leave without cleaning up if the graceful end does not come."""
    wait_for_end(supervisor)
    time.sleep(grace_seconds + MARGIN_SECONDS)
    os._exit(1)
