"""Makes the machine ready for a worker: nothing of an earlier start of it may be left."""

import asyncio
import os
import shutil
import sys

import structlog

from attune.worker.plan import WorkerPlan
from attune.worker.processes import Marking, become_subreaper, end_all, find_marked, hide_memory


async def prepare_machine(plan: WorkerPlan, marking: Marking) -> None:
    """End processes and remove files that an earlier start of this worker left behind."""
    watch_children_by_descriptor()
    become_subreaper()
    hide_memory()
    log = structlog.get_logger()
    if left := find_marked(marking.worker_prefix):
        log.warning("worker.leftovers_killed", processes=len(left))
        if not await end_all(lambda: find_marked(marking.worker_prefix)):
            log.error("worker.leftovers_survive", pids=sorted(find_marked(marking.worker_prefix)))
    await asyncio.to_thread(shutil.rmtree, plan.scratch, ignore_errors=True)
    plan.scratch.mkdir(parents=True, exist_ok=True)
    # Another account must pass through to its own directory, and needs not look around.
    plan.scratch.chmod(0o711 if os.geteuid() == 0 else 0o700)


def watch_children_by_descriptor() -> None:
    """Let the running loop hear of ended children from the kernel; Python 3.11 would start a thread for each."""
    if sys.version_info >= (3, 12) or not hasattr(os, "pidfd_open"):
        return
    policy = asyncio.get_event_loop_policy()
    current = policy.get_child_watcher()
    if isinstance(current, asyncio.PidfdChildWatcher) and current.is_active():
        return
    watcher = asyncio.PidfdChildWatcher()
    watcher.attach_loop(asyncio.get_running_loop())
    policy.set_child_watcher(watcher)
