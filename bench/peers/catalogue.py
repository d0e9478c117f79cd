"""Who is measured beside us: how each is started, which workloads it is given, and what it leaves out in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final


class Server(StrEnum):
    """What a peer keeps its messages in."""

    RABBITMQ = "rabbitmq"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerWorkload:
    """No-ops, as near to the workload of the same name as the peer comes."""

    name: str
    executions: int
    quick: int
    actions: int = 1
    # Only where the peer can hold a limit; elsewhere there is none.
    limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One system; in its commands {bin}, {url}, {port} and {home} are filled in, and `{cores}` is the machine's."""

    name: str
    server: Server
    setup: Sequence[Sequence[str]] = ()
    # Started and left running: workers, and a server of its own.
    background: Sequence[Sequence[str]]
    # Once for each processor.
    workers: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workloads: Sequence[PeerWorkload]
    settings: str
    lacks: Sequence[str]


W2: Final = PeerWorkload(name="W2", executions=10_000, quick=2_000)
W3: Final = PeerWorkload(name="W3", executions=10_000, quick=2_000, actions=100)

NO_RECORD: Final = "no record of an execution"
NO_RESULT: Final = "no result or log kept"
NO_LIMIT: Final = "no limit per action across processes"
NO_FIFO: Final = "no strict order"
NO_ISOLATION: Final = "runs inside the worker's process"
NO_API: Final = "no HTTP API with authentication on the way"

PEERS: Final[Sequence[Peer]] = (
    Peer(
        name="celery",
        server=Server.RABBITMQ,
        background=[
            ["{bin}/celery", "-A", "with_celery", "worker", "--concurrency", "{cores}", "--loglevel", "WARNING"]
        ],
        workloads=[W2, W3],
        settings="prefork, one process per processor, prefetch 4 each; early acknowledgement, no result backend, "
        "publishing without confirms: all its defaults",
        lacks=[NO_RECORD, NO_RESULT, NO_FIFO, NO_LIMIT, "a task under way dies with its worker", NO_API],
    ),
    Peer(
        name="dramatiq",
        server=Server.RABBITMQ,
        background=[["{bin}/dramatiq", "with_dramatiq", "--processes", "{cores}", "--threads", "8"]],
        workloads=[W2, W3],
        settings="one process per processor, 8 threads and prefetch 16 each; acknowledged after the task, "
        "publishing without confirms: all its defaults",
        lacks=[NO_RECORD, NO_RESULT, NO_FIFO, NO_LIMIT, NO_ISOLATION, NO_API],
    ),
    Peer(
        name="procrastinate",
        server=Server.POSTGRES,
        setup=[["{bin}/procrastinate", "--app", "with_procrastinate.app", "schema", "--apply"]],
        background=[],
        workers=[
            *("{bin}/procrastinate", "--log-level", "warning", "--app", "with_procrastinate.app"),
            *("worker", "--concurrency", "10"),
        ],
        workloads=[W2, W3],
        settings="one process per processor, 10 jobs at once each, asynchronous tasks, jobs kept, "
        "LISTEN/NOTIFY on, deferred in batches of 100",
        lacks=[NO_RESULT, "no limit but one by a lock", "no order across processes", NO_ISOLATION, NO_API],
    ),
    Peer(
        name="dbos",
        server=Server.POSTGRES,
        setup=[["{bin}/python", "with_dbos.py", "set-up"]],
        background=[],
        workers=["{bin}/python", "with_dbos.py", "work"],
        workloads=[
            PeerWorkload(name="W1", executions=1_000, quick=300, limit=5),
            PeerWorkload(name="W2", executions=1_000, quick=300, limit=10),
        ],
        settings="one process per processor, global limit 5 (W1) and 10 (W2), polling every 50 ms (its default: 1 s)",
        lacks=["no order of starts promised", NO_ISOLATION, "no log kept", NO_API],
    ),
    Peer(
        name="prefect",
        server=Server.POSTGRES,
        background=[["{bin}/prefect", "server", "start", "--no-ui", "--analytics-off", "--port", "{port}"]],
        workers=["{bin}/python", "with_prefect.py", "work"],
        environment={
            "PREFECT_API_URL": "http://127.0.0.1:{port}/api",
            "PREFECT_HOME": "{home}",
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": "{url}",
            "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
            "PREFECT_LOGGING_LEVEL": "WARNING",
        },
        workloads=[PeerWorkload(name="W2", executions=200, quick=60)],
        settings="its own server on PostgreSQL, background tasks, one task worker per processor, 10 at once each",
        lacks=["no strict order", "no limit held here", NO_ISOLATION, "no authentication"],
    ),
)
