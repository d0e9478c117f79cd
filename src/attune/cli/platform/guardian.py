"""Waits for the supervisor to die, and then ends what it could not end itself.

Services notice their supervisor's death and end gracefully; for that they need the database, which therefore must
outlive them. This process keeps that order when nobody else is left to keep it.
"""

import contextlib
import os
from pathlib import Path

from attune.cli.platform.tether import supervisor_of, wait_for_end


def guard(home: Path) -> None:
    supervisor = supervisor_of(os.environ)
    if supervisor is None or os.getppid() != supervisor:
        return
    wait_for_end(supervisor)
    # Only now, so that the waiting process stays small.
    from attune.cli.exits import CommandFailed
    from attune.cli.platform.instance import GUARDIAN_MARK, only_instance
    from attune.cli.platform.leftovers import end_leftovers
    from attune.runtime.home import Home
    from attune.runtime.settings import load_settings

    settings = load_settings(environment=os.environ).settings
    # Whoever holds the home already is a new supervisor, and ends leftovers itself before it starts anything.
    with contextlib.suppress(CommandFailed), only_instance(Home(home), mark=GUARDIAN_MARK):
        end_leftovers(settings, Home(home), grace_seconds=settings.worker.shutdown_timeout)


if __name__ == "__main__":
    import signal
    import sys

    import setproctitle

    # Ends only when the supervisor asks for it, or after its own work is done.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    setproctitle.setproctitle(f"attune-guardian {os.environ['ATTUNE_HOME']}")
    with contextlib.suppress(KeyboardInterrupt):
        guard(Path(os.environ["ATTUNE_HOME"]))
    sys.exit(0)
