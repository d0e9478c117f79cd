"""Whether this worker offers containers, and what an earlier start of it left of them."""

from collections.abc import Mapping

import structlog

from attune.worker.containers.engine import Engine, worker_label
from attune.worker.containers.probe import NoEngine, find_engine
from attune.worker.plan import CONTAINER_OFF
from attune.worker.processes import Children, Marking
from attune.worker.runtimes.ask import NotOffered


async def offer_containers(
    choice: str, marking: Marking, children: Children, *, variables: Mapping[str, str]
) -> Engine | NotOffered:
    """A program that was seen to run a container, or why there is none; `variables` are the worker's own."""
    if choice == CONTAINER_OFF:
        return NotOffered("worker.container is off")
    try:
        engine = await find_engine(choice, variables, children)
    except NoEngine as error:
        return NotOffered(str(error))
    # Nothing else ends them if the machine, or the guardian too, was killed.
    if not await engine.remove_all(worker_label(marking)):
        structlog.get_logger().error("worker.containers_survive", label=worker_label(marking))
    return engine
