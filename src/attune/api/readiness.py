"""Whether the API can do its work, part by part, with the cure for what does not."""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog

from attune.api.parts import Check, CheckResult
from attune.runtime.clock import monotonic

CHECK_SECONDS_MAX: Final = 3.0
# The route is open to everybody, so asking often must not cost more than asking once a second.
FRESH_SECONDS: Final = 1.0


class PartState(msgspec.Struct, kw_only=True, frozen=True):
    """How one part is doing."""

    ok: bool
    detail: str
    required: bool = True
    cure: str = ""


class ReadyState(msgspec.Struct, kw_only=True, frozen=True):
    """Ready if every required part is."""

    ready: bool
    parts: dict[str, PartState]


class Readiness:
    """Runs the checks side by side and remembers the outcome for a moment."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._lock = asyncio.Lock()
        self._last: tuple[float, ReadyState] | None = None

    async def state(self) -> ReadyState:
        """The state as of now, or of a moment ago."""
        async with self._lock:
            if self._last is None or monotonic() - self._last[0] >= FRESH_SECONDS:
                results = await asyncio.gather(*(_run(name, check) for name, check in self._checks.items()))
                parts = dict(zip(self._checks, results, strict=True))
                ready = all(part.ok or not part.required for part in parts.values())
                self._last = (monotonic(), ReadyState(ready=ready, parts=parts))
            return self._last[1]


async def _run(name: str, check: Check) -> PartState:
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX):
            result = await check()
    except TimeoutError:
        result = CheckResult(ok=False, detail=f"no answer within {CHECK_SECONDS_MAX:g} s", cure=f"is {name} running?")
    except Exception as error:  # noqa: BLE001  a check that fails is the news itself; its words may hold secrets
        structlog.get_logger().warning("api.check_failed", part=name, exc_info=error)
        result = CheckResult(ok=False, detail=f"failed ({type(error).__name__})", cure="see the log of the API")
    return PartState(ok=result.ok, detail=result.detail, required=result.required, cure=result.cure)
