"""What no living worker has, in words for the person whose work cannot run."""

from collections.abc import Sequence

from attune.domain.execution import Failure
from attune.domain.placement import Candidate, Requirements, can_run


def name_missing(requirements: Requirements, living: Sequence[Candidate]) -> str:
    """The first thing that is missing: any worker, the runtime, a label, the isolation, or all of it in one.

    Where somebody alive has all of it, everybody who has was taken out.
    """
    if not living:
        return "no worker is alive"
    if able := sum(can_run(each, requirements) for each in living):
        return f"{'the only worker' if able == 1 else f'each of the {able} workers'} that could run it is cordoned"
    with_runtime = [each for each in living if requirements.runner in each.runtimes]
    if not with_runtime:
        return f"no live worker has runtime {requirements.runner}"
    for name, value in sorted(requirements.labels.items()):
        if not any(each.labels.get(name) == value for each in with_runtime):
            return f"no live worker with runtime {requirements.runner} has label {name}={value}"
    if requirements.isolation is not None and not any(_isolates(each, requirements) for each in with_runtime):
        return f"no live worker with runtime {requirements.runner} offers isolation {requirements.isolation}"
    return f"no live worker has runtime {requirements.runner} and everything else it asks for at once"


def no_worker(requirements: Requirements, living: Sequence[Candidate], *, by: str) -> Failure:
    """How an execution fails that nobody alive could run."""
    return Failure(code="no_worker", message=f"no workers available: {name_missing(requirements, living)}", by=by)


def _isolates(candidate: Candidate, requirements: Requirements) -> bool:
    alone = Requirements(runner=requirements.runner, labels={}, isolation=requirements.isolation)
    return can_run(candidate, alone)
