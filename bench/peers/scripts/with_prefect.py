"""Prefect: background tasks, sent to a server of its own on PostgreSQL and carried out by task workers."""

import os
import time
import urllib.request

from effects import asked, begin, is_producer, note
from prefect import task
from prefect.task_worker import serve

PATIENCE_SECONDS = 120
LIMIT = 10


@task
def noop(number: int) -> None:
    note(number)


def wait_for_server() -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{os.environ['PREFECT_API_URL']}/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    wait_for_server()
    if is_producer():
        numbers, _, _ = asked()
        begin()
        for each in numbers:
            noop.delay(each)
    else:
        serve(noop, limit=LIMIT)
