"""DBOS on PostgreSQL: workflows in a queue with a limit for all processes together, looked at every 50 ms."""

import os
import signal
import sys
import uuid

from dbos import DBOS, DBOSClient
from effects import asked, begin, note

LIMITS = (5, 10)
POLLING_SECONDS = 0.05


@DBOS.workflow(name="noop")
def noop(number: int) -> None:
    note(number)


def send() -> None:
    numbers, _, limit = asked()
    client = DBOSClient(system_database_url=os.environ["PEER_URL"])
    begin()
    for each in numbers:
        client.enqueue({"workflow_name": "noop", "queue_name": f"limit_{limit}"}, each)
    client.destroy()


def launch() -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": os.environ["PEER_URL"],
            "log_level": "WARNING",
            "application_version": "bench",
            "executor_id": str(uuid.uuid4()),
        }
    )
    DBOS.launch()
    for limit in LIMITS:
        DBOS.register_queue(f"limit_{limit}", global_concurrency=limit, polling_interval_sec=POLLING_SECONDS)


def set_up() -> None:
    """The first launch makes the tables."""
    launch()
    DBOS.destroy()


def work() -> None:
    launch()
    signal.pause()


if __name__ == "__main__":
    {"send": send, "set-up": set_up, "work": work}[sys.argv[1]]()
