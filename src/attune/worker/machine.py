"""Makes the machine ready for a worker: nothing of an earlier start of it may be left."""

import asyncio
import os
import shutil

import structlog

from attune.worker.launch import watch_children_by_descriptor
from attune.worker.plan import WorkerPlan
from attune.worker.processes import Marking, become_subreaper, end_all, find_marked


async def prepare_machine(plan: WorkerPlan, marking: Marking) -> None:
    """End processes and remove files that an earlier start of this worker left behind."""
    watch_children_by_descriptor()
    become_subreaper()
    log = structlog.get_logger()
    if left := find_marked(marking.worker_prefix):
        log.warning("worker.leftovers_killed", processes=len(left))
        if not await end_all(lambda: find_marked(marking.worker_prefix)):
            log.error("worker.leftovers_survive", pids=sorted(find_marked(marking.worker_prefix)))
    await asyncio.to_thread(shutil.rmtree, plan.scratch, ignore_errors=True)
    plan.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    plan.scratch.chmod(0o700)


def warn_of_root() -> None:
    """Say aloud that actions will have every right the worker has."""
    if os.geteuid() == 0:
        structlog.get_logger().warning(
            "worker.isolation_none_as_root", cure="run the worker under an account of its own"
        )
