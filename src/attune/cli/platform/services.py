"""The services of a platform: which there are, how each is started, and how many of each may be."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from attune.cli.exits import UsageFailed
from attune.cli.platform.child import Spec
from attune.cli.platform.processes import SUPERVISOR_VARIABLE, marked_environment
from attune.cli.platform.supervisor import COUNT_MAX
from attune.runtime.home import Home

SERVICES: Final = ("api", "executor", "worker", "sensor", "notifier")
GUARDIAN: Final = "guardian"
# Two could not listen on the same port; behind a balancer start more with `attune serve api`.
_ONE_AT_MOST: Final = frozenset({"api"})
# How many are wanted is known of these.
_MAY_FOLLOW: Final = frozenset({"worker"})


def attune_command(*arguments: str) -> tuple[str, ...]:
    """This very installation's command line; -P keeps the working directory off the import path."""
    return (sys.executable, "-P", "-m", "attune.cli.main", *arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many processes of a service are to run: so many, or as many as are wanted within a range."""

    low: int
    high: int

    def clamp(self, number: int) -> int:
        """The nearest number within."""
        return min(max(number, self.low), self.high)


DEFAULT_COUNTS: Final[Mapping[str, Count]] = dict.fromkeys(SERVICES, Count(low=1, high=1))


def read_counts(texts: tuple[str, ...]) -> dict[str, Count]:
    """Read words like `executor=3` and `worker=1..4`."""
    counts: dict[str, Count] = {}
    for text in texts:
        service, _, number = text.partition("=")
        if service not in SERVICES:
            raise UsageFailed(f"{text!r}: no service {service!r}; there are {', '.join(SERVICES)}")
        low, dots, high = number.partition("..")
        if not all(_is_count(each) for each in ((low, high) if dots else (low,))):
            form = f"{service}=N or {service}=N..M" if service in _MAY_FOLLOW else f"{service}=N"
            raise UsageFailed(f"{text!r}: write {form}, with numbers from 0 to {COUNT_MAX}")
        counts[service] = Count(low=int(low), high=int(high if dots else low))
        check_count(service, counts[service])
    return counts


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) <= COUNT_MAX


def check_count(service: str, count: Count) -> None:
    """Refuse a number of processes that cannot work."""
    if service not in SERVICES:
        raise UsageFailed(f"no service {service!r}; there are {', '.join(SERVICES)}")
    most = 1 if service in _ONE_AT_MOST else COUNT_MAX
    if not 0 <= count.low <= count.high <= most:
        shown = count.low if count.low == count.high else f"{count.low}..{count.high}"
        raise UsageFailed(f"{service}={shown}: from 0 to {most} of them can run here")
    if count.low < count.high and service not in _MAY_FOLLOW:
        raise UsageFailed(f"{service}={count.low}..{count.high}: only workers can follow what is wanted")


def specify_in(home: Home, environment: Mapping[str, str]) -> Callable[[str, str], Spec]:
    """How a process of this home is started."""

    def specify(service: str, name: str) -> Spec:
        command = attune_command("serve", service, "--name", name)
        if service == GUARDIAN:
            command = (sys.executable, "-P", "-m", "attune.cli.platform.guardian")
        given = {**environment, SUPERVISOR_VARIABLE: str(os.getpid())}
        return Spec(
            name=name,
            service=service,
            command=command,
            environment=marked_environment(home.root, name, given),
            log=home.log(name),
        )

    return specify
