"""Celery on RabbitMQ, with its own defaults: no result backend, acknowledged before the task runs."""

import os

from celery import Celery
from effects import ACTIONS, asked, begin, is_producer, note

app = Celery("bench", broker=os.environ["PEER_URL"])


def noop(number):
    note(number)


TASKS = [app.task(name=f"bench.noop_{number}")(noop) for number in range(ACTIONS)]

if __name__ == "__main__" and is_producer():
    numbers, actions, _ = asked()
    begin()
    for each in numbers:
        TASKS[each % actions].delay(each)
