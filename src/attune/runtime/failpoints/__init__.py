"""Named places where a test can make this process die, stall, fail, skip a step or lose an answer.

Every place is declared in the registry. Armed by ATTUNE_FAILPOINTS, for example
`consume.before_commit=kill@3;lease.renew=raise@p0.05;worker.control=sleep:0.5`: without `@` at every hit, `@3` at the
third hit only, `@p0.05` at one hit in twenty. Unarmed, a failpoint costs one test of a flag.
"""

from attune.runtime.failpoints.entries import Action, Failpoint, FailpointError, parse_failpoints
from attune.runtime.failpoints.firing import (
    FailpointRaised,
    afailpoint,
    arm_failpoints,
    arm_from_environment,
    failpoint,
    failpoint_hits,
    record_failpoints,
)
from attune.runtime.failpoints.registry import DECLARED, Declared

__all__ = [
    "DECLARED",
    "Action",
    "Declared",
    "Failpoint",
    "FailpointError",
    "FailpointRaised",
    "afailpoint",
    "arm_failpoints",
    "arm_from_environment",
    "failpoint",
    "failpoint_hits",
    "parse_failpoints",
    "record_failpoints",
]
