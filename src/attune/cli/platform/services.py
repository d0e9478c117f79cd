"""The services of a platform: which there are, how each is started, and how many of each may be."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Final

from attune.cli.exits import UsageFailed
from attune.cli.platform.child import Spec
from attune.cli.platform.processes import SUPERVISOR_VARIABLE, marked_environment
from attune.cli.platform.supervisor import COUNT_MAX
from attune.runtime.home import Home

SERVICES: Final = ("api", "executor", "worker", "sensor", "notifier")
GUARDIAN: Final = "guardian"
DEFAULT_COUNTS: Final[Mapping[str, int]] = dict.fromkeys(SERVICES, 1)
# Two could not listen on the same port; behind a balancer start more with `attune serve api`.
_ONE_AT_MOST: Final = frozenset({"api"})


def attune_command(*arguments: str) -> tuple[str, ...]:
    """This very installation's command line; -P keeps the working directory off the import path."""
    return (sys.executable, "-P", "-m", "attune.cli.main", *arguments)


def read_counts(texts: tuple[str, ...]) -> dict[str, int]:
    """Read `executor=3` words."""
    counts: dict[str, int] = {}
    for text in texts:
        service, _, number = text.partition("=")
        if service not in SERVICES:
            raise UsageFailed(f"{text!r}: no service {service!r}; there are {', '.join(SERVICES)}")
        if not number.isdigit() or int(number) > COUNT_MAX:
            raise UsageFailed(f"{text!r}: write {service}=N, with N from 0 to {COUNT_MAX}")
        check_count(service, int(number))
        counts[service] = int(number)
    return counts


def check_count(service: str, count: int) -> None:
    """Refuse a number of processes that cannot work."""
    if service not in SERVICES:
        raise UsageFailed(f"no service {service!r}; there are {', '.join(SERVICES)}")
    most = 1 if service in _ONE_AT_MOST else COUNT_MAX
    if not 0 <= count <= most:
        raise UsageFailed(f"{service}={count}: from 0 to {most} of them can run here")


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
