"""Procrastinate on PostgreSQL; jobs are deferred a hundred at a time, as our own client asks."""

import os

from effects import ACTIONS, BATCH, asked, begin, is_producer, note
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["PEER_URL"]))


async def noop(number: int) -> None:
    note(number)


TASKS = [app.task(name=f"noop_{number}")(noop) for number in range(ACTIONS)]

if __name__ == "__main__" and is_producer():
    numbers, actions, _ = asked()
    with app.open():
        begin()
        for action in range(actions):
            own = numbers[action::actions]
            for start in range(0, len(own), BATCH):
                TASKS[action].batch_defer(*({"number": each} for each in own[start : start + BATCH]))
