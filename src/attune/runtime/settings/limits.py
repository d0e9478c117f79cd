"""What actions may use of a worker's machine."""

from dataclasses import dataclass

from attune.runtime.settings.declare import Rules, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """What one process of an action may use; 0 is no limit."""

    memory_mb: int = setting(
        2048, Rules(doc="MiB of memory a process may write to, shared memory excepted.", minimum=0, maximum=1_048_576)
    )
    cpu_seconds: int = setting(
        0, Rules(doc="Seconds of processor time; its timeout ends an action anyway.", minimum=0, maximum=31_536_000)
    )
    files: int = setting(1024, Rules(doc="Files a process may have open.", minimum=16, maximum=1_048_576))
    file_size_mb: int = setting(
        10_240, Rules(doc="MiB that any one file may grow to.", minimum=0, maximum=1_073_741_824)
    )
    processes: int = setting(
        1024,
        Rules(
            doc="Processes and threads, counted together for all actions that run under one account.",
            minimum=0,
            maximum=1_000_000,
        ),
    )
    disk_free_mb: int = setting(
        100,
        Rules(doc="MiB that must be free on the worker's disk; with less it takes no work.", minimum=0, maximum=2**30),
    )
