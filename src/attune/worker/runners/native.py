"""Runs the actions that need no process: functions of the worker itself."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from attune.domain.json_values import Json
from attune.domain.retry import Ending
from attune.worker.results import finish_with
from attune.worker.runners.protocol import Attempt, Output, failed, stopped
from attune.worker.runners.stopping import Stopped, until_stopped

Parameters = Mapping[str, Json]


class ActionFailed(Exception):
    """The action did what it could and failed; the message is for people."""


async def noop(_parameters: Parameters) -> Json:
    return None


async def echo(parameters: Parameters) -> Json:
    return {"message": parameters.get("message", "")}


async def sleep(parameters: Parameters) -> Json:
    seconds = parameters["seconds"]
    if not isinstance(seconds, int | float):
        raise ActionFailed("seconds must be a number")
    await asyncio.sleep(seconds)
    return {"seconds": seconds}


async def fail(parameters: Parameters) -> Json:
    raise ActionFailed(str(parameters.get("message", "failed on request")))


async def set_values(parameters: Parameters) -> Json:
    return parameters["values"]


FUNCTIONS: Final[Mapping[str, Callable[[Parameters], Awaitable[Json]]]] = MappingProxyType(
    {"noop": noop, "echo": echo, "sleep": sleep, "fail": fail, "set": set_values}
)


class NativeRunner:
    """One coroutine for each attempt; stopping cancels it."""

    async def run(self, attempt: Attempt, output: Output) -> Ending:  # noqa: ARG002  these functions print nothing
        work = attempt.work
        function = FUNCTIONS.get(work.entry_point or "")
        if function is None:
            known = ", ".join(FUNCTIONS)
            return failed(attempt, "missing_entry_point", f"there is no native function {work.entry_point!r}: {known}")
        if attempt.stop.reason is not None:
            return stopped(attempt, attempt.stop.reason)
        attempt.check_clock()
        parameters = work.parameters if isinstance(work.parameters, dict) else {}
        return await self._call(attempt, function, parameters)

    async def _call(
        self, attempt: Attempt, function: Callable[[Parameters], Awaitable[Json]], parameters: Parameters
    ) -> Ending:
        try:
            result = await until_stopped(attempt, function(parameters))
        except ActionFailed as error:
            return failed(attempt, "failed", str(error))
        except Stopped as early:
            return stopped(attempt, early.reason)
        return finish_with(attempt, result)
