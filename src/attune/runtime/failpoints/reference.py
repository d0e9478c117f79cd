"""The reference page of failpoints: `python -m attune.runtime.failpoints > docs/reference/failpoints.md`."""

from collections.abc import Mapping
from typing import Final

from attune.runtime.failpoints.registry import DECLARED, Declared

_HEAD: Final = """\
# Failpoints

<!-- Generated from the registry: run `python -m attune.runtime.failpoints > docs/reference/failpoints.md`. -->

Named places where a process can be made to die, stall, fail, skip a step or lose an answer, at exactly the moment a
test wants. Unarmed, one costs the test of a flag. They are for tests and rehearsals; do not arm them where work
matters.

```sh
ATTUNE_FAILPOINTS='consume.before_commit=kill@3;publish.sent.before_confirm=raise@p0.05' ./attune up
```

`ATTUNE_FAILPOINTS` is a list of `name=action[:seconds][@hit|@pchance]`, separated by semicolons. Without `@` it acts at
every hit, with `@3` at the third only, with `@p0.05` at one hit in twenty. A name that is not in the table below is
refused. `ATTUNE_FAILPOINTS_SEED` makes the draws repeat.

| action | what happens |
|---|---|
| `kill` | the process gets SIGKILL |
| `raise` | an exception that nobody expects |
| `sleep:0.5` | half a second passes |
| `drop` | the step is skipped, where it can be |
| `unknown` | the step is done, and its answer is lost: the caller sees the error of a lost connection |

With `ATTUNE_FAILPOINTS_FOLDER` a point acts once on the whole platform, however often its processes restart: before it
acts, the process makes a file with the point's name in that folder, which says in JSON who did what and when; where the
file is there already, nothing happens. Only what is armed with a chance and does not kill goes on.
`python -m attune.runtime.failpoints FOLDER` then prints which points a run has reached.

| name | passed by | the moment | an answer to lose |
|---|---|---|---|
"""


def failpoint_reference(declared: Mapping[str, Declared] = DECLARED) -> str:
    """The whole page."""
    return _HEAD + "".join(f"{_row(point)}\n" for point in declared.values())


def _row(point: Declared) -> str:
    services = ", ".join(sorted(point.services))
    return f"| `{point.name}` | {services} | {point.meaning} | {'yes' if point.answered else ''} |"
