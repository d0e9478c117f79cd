"""Every failpoint there is: where it sits, which processes pass it, and what dying there means."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One failpoint; it is passed once in each of its modules and nowhere else."""

    name: str
    places: tuple[str, ...]
    services: frozenset[str]
    meaning: str
    # The step before it is done and its answer could be lost: `unknown` can be armed here.
    answered: bool = False


API: Final = frozenset({"api"})
EXECUTOR: Final = frozenset({"executor"})
WORKER: Final = frozenset({"worker"})
CONSUMERS: Final = EXECUTOR | WORKER
WRITERS: Final = API | CONSUMERS
FOLLOWERS: Final = frozenset({"sensor", "notifier"})
EVERY: Final = WRITERS | FOLLOWERS
# The process of `attune up`, which prepares the database before it starts the others.
SUPERVISOR: Final = frozenset({"supervisor"})


def _at(place: str, name: str, services: frozenset[str], meaning: str) -> Declared:
    return Declared(name=name, places=(place,), services=services, meaning=meaning)


def _after(place: str, name: str, services: frozenset[str], meaning: str) -> Declared:
    return Declared(name=name, places=(place,), services=services, meaning=meaning, answered=True)


_COMMITS: Final = (
    _after(
        "storage/database.py",
        "storage.commit.before_answer",
        EVERY,
        "a transaction is committed; who began it does not know",
    ),
    _at(
        "storage/database.py",
        "storage.commit.before_wake",
        WRITERS,
        "messages are committed, nobody was woken and nothing published; `drop` leaves it so",
    ),
    _at("storage/migrate.py", "migration.step.before_commit", SUPERVISOR, "a migration was applied and not committed"),
)

_ACCEPTANCE: Final = (
    _at("api/acceptance.py", "api.accept.before_tx", API, "requests have arrived together, nothing is written"),
    _after("api/acceptance.py", "api.accept.after_commit", API, "requests are accepted, and the API does not know"),
    _after("api/app.py", "api.answer.before_send", API, "a change is made, and whoever asked was not answered"),
    _at("operations/cancel_execution.py", "cancel.before_write", API, "a family is locked, none of it is cancelled"),
    _at("packs/store.py", "pack.staged.before_rename", API, "a pack was copied and checked, and is not in its place"),
    _at("operations/install_pack.py", "pack.install.before_commit", API, "a pack is written and not committed"),
    _at(
        "operations/workers/drain_worker.py",
        "drain.closed.before_hand_back",
        API,
        "a worker is closed for placement and has not given back what it had not started",
    ),
    _at(
        "operations/dead_letters/replay_dead_letters.py",
        "dlq.replay.before_write",
        API,
        "dead letters were announced again; that they were is not written",
    ),
)

_MESSAGES: Final = (
    _at("transport/rabbitmq/publisher.py", "publish.before_send", WRITERS, "RabbitMQ: committed, not published"),
    _at(
        "transport/rabbitmq/publisher.py", "publish.sent.before_confirm", WRITERS, "RabbitMQ: published, not confirmed"
    ),
    _after(
        "transport/rabbitmq/publisher.py",
        "publish.confirmed.before_answer",
        WRITERS,
        "RabbitMQ: the broker has it, and whoever published does not know",
    ),
    _at(
        "transport/rabbitmq/publisher.py",
        "publish.confirmed.before_outbox_delete",
        WRITERS,
        "RabbitMQ: confirmed, still in the outbox",
    ),
    _at(
        "transport/rabbitmq/publisher.py",
        "publish.returned.before_tx",
        WRITERS,
        "RabbitMQ: the broker has no queue for it, and nothing was done about that",
    ),
    _at(
        "transport/rabbitmq/publisher.py",
        "relay.claimed.before_send",
        WRITERS,
        "RabbitMQ: overdue messages are put off for the others and not published",
    ),
    _at(
        "transport/consume.py",
        "consume.received.before_tx",
        CONSUMERS,
        "a consumer has taken messages and has not handled them",
    ),
    _at("transport/consume.py", "consume.before_commit", CONSUMERS, "their effect is written and not committed"),
    _at(
        "transport/consume.py",
        "consume.after_commit_before_ack",
        CONSUMERS,
        "the effect is committed, the messages are not acknowledged",
    ),
    _at(
        "transport/consume.py",
        "consume.counted.before_tx",
        CONSUMERS,
        "a message that may be to blame is counted and about to be handled alone",
    ),
    _at(
        "transport/consume.py",
        "consume.put_off.before_ack",
        CONSUMERS,
        "a message that failed is put off, and not acknowledged",
    ),
    _at("transport/follow.py", "broadcast.received", FOLLOWERS, "a change was told, and is not followed yet"),
)

_DEAD_LETTERS: Final = (
    Declared(
        name="dlq.parked.before_ack",
        places=("transport/consume.py", "transport/rabbitmq/source.py"),
        services=CONSUMERS,
        meaning="a message was parked and is not acknowledged",
    ),
    _at("transport/expiry.py", "dlq.expired.before_wake", EXECUTOR, "dispatches have expired, nobody was told"),
    _at(
        "operations/dead_letters/bury_dead_letters.py",
        "dlq.bury.before_write",
        EXECUTOR,
        "what becomes of dead dispatches is decided and not written",
    ),
)

_PLACEMENT: Final = (
    Declared(
        name="admit.before_place",
        places=("operations/lines/admit_waiting.py", "operations/lines/pass_slots_on.py"),
        services=CONSUMERS,
        meaning="slots were given back and given to the next in line, who have no worker yet",
    ),
    _at(
        "operations/place_newcomers.py",
        "place.newcomers.before_write",
        CONSUMERS,
        "workers are chosen for those just let through, and not written",
    ),
    _at(
        "operations/place_admitted.py",
        "place.admitted.before_write",
        CONSUMERS,
        "workers are chosen for those who waited for room, and not written",
    ),
    _at(
        "operations/unplace_executions.py",
        "unplace.before_write",
        WRITERS,
        "what is to be taken from a worker is locked, and still there",
    ),
    _at("executor/service.py", "executor.beat", EXECUTOR, "an executor is about to say that it lives"),
    _at("executor/service.py", "executor.leave", EXECUTOR, "an executor was told to stop, and still counts as there"),
)

_SWEEPS: Final = (
    _at(
        "operations/rescue_lost.py",
        "sweep.lost_workers.selected",
        EXECUTOR,
        "attempts of lost workers are found, nothing is done about them",
    ),
    _at(
        "operations/workers/quarantine_actions.py",
        "quarantine.before_write",
        EXECUTOR,
        "attempts of lost workers have ended; their actions are not suspected yet",
    ),
    _at(
        "operations/expire_executions.py",
        "sweep.scheduled_timeout.selected",
        EXECUTOR,
        "attempts nobody picked up are found, and still where they were",
    ),
    _at(
        "operations/expire_executions.py",
        "sweep.deadline.selected",
        EXECUTOR,
        "attempts past their deadline are found, and not ended",
    ),
    _at(
        "operations/dead_letters/expire_own_ttls.py",
        "sweep.own_ttl.selected",
        EXECUTOR,
        "dispatches past a time of their own are found, and not buried",
    ),
    _at(
        "operations/lines/expire_waiting.py",
        "sweep.queue_timeout.selected",
        EXECUTOR,
        "who waited too long in line is found, and still waits",
    ),
    _at(
        "operations/lines/adapt_limits.py",
        "sweep.adaptive_limits.selected",
        EXECUTOR,
        "lines whose limits move are found, and not looked at",
    ),
    _at(
        "operations/lines/remove_idle_lines.py",
        "sweep.idle_lines.before_commit",
        EXECUTOR,
        "unused lines are removed, and that is not committed",
    ),
    _at(
        "operations/upkeep/heal_states.py",
        "sweep.state_audit.selected",
        EXECUTOR,
        "states that should not last are found, their hints are not committed",
    ),
    _at(
        "operations/workers/probe_workers.py",
        "sweep.health_probe.marked",
        EXECUTOR,
        "silent workers are marked, the others are not pinged",
    ),
    _at(
        "operations/workers/expire_unserved.py",
        "sweep.no_worker.before_commit",
        EXECUTOR,
        "who waited for a worker that does not exist is given up, not committed",
    ),
    _at(
        "operations/upkeep/keep_house.py",
        "sweep.housekeeping.partitions_made",
        EXECUTOR,
        "partitions are made, nothing old is removed, and nothing committed",
    ),
    _at(
        "operations/upkeep/record_lines.py",
        "sweep.line_history.recorded",
        EXECUTOR,
        "how lines do is recorded, and not committed",
    ),
    _at(
        "operations/upkeep/evaluate_alerts.py",
        "sweep.alerts.evaluated",
        EXECUTOR,
        "what there is to tell people is decided, and not written",
    ),
    _at(
        "operations/workers/announce_scaling.py",
        "sweep.scaling.decided",
        EXECUTOR,
        "how many workers are wanted is decided, and not written",
    ),
    _at("operations/upkeep/store_counts.py", "counts.before_commit", EVERY, "counters are added up, not committed"),
)

_WORKERS: Final = (
    _at(
        "worker/service.py",
        "worker.registered.before_consume",
        WORKER,
        "a worker is registered, may be given work, and does not listen yet",
    ),
    _at("worker/heartbeat.py", "lease.renew", WORKER, "a worker is about to renew its leases"),
    _after("worker/heartbeat.py", "lease.renewed.before_answer", WORKER, "its leases are renewed, it does not know"),
    _at("worker/service.py", "worker.control", WORKER, "cancels or a ping have arrived, nothing was done about them"),
    _at("worker/claims.py", "worker.claim.before", WORKER, "a dispatch has arrived, nothing was claimed"),
    _at("worker/claims.py", "worker.claim.before_commit", WORKER, "the claim is written and not committed"),
    _at("worker/claims.py", "worker.settle.before_tx", WORKER, "nobody knows whether a claim was committed"),
    _at("worker/perform.py", "worker.run.before_start", WORKER, "claimed, and nothing was started"),
    _at(
        "worker/perform.py",
        "worker.run.blocked",
        WORKER,
        "the same moment; `sleep` here stops the whole process, as a pause of the machine does",
    ),
    _at(
        "worker/environments/store.py",
        "environment.built.before_rename",
        WORKER,
        "what a pack needs is built, and not in its place",
    ),
    _at(
        "worker/launcher/client.py",
        "launcher.asked.before_answer",
        WORKER,
        "a process was asked for; `drop` kills the launcher that is starting it",
    ),
    _at("worker/runners/script.py", "worker.spawned.before_watch", WORKER, "a process was started, nobody watches it"),
    _at("worker/tree.py", "worker.stop.before_kill", WORKER, "an action was asked to end and has its grace"),
    _at("worker/reports.py", "logs.chunks.before_commit", WORKER, "output is written and not committed"),
    _after("worker/reports.py", "logs.chunks.after_commit", WORKER, "output is stored, the worker does not know"),
    _at("worker/reports.py", "artifact.before_commit", WORKER, "a large result is written and not committed"),
    _after("worker/reports.py", "artifact.after_commit", WORKER, "a large result is stored, the worker does not know"),
    _at("worker/perform.py", "worker.ended.before_report", WORKER, "an attempt has ended, its slot is not free"),
    _at("worker/reports.py", "worker.finish.before_tx", WORKER, "the action has ended, nobody knows"),
    _at(
        "worker/reports.py",
        "worker.hand_on.before_commit",
        WORKER,
        "an end, and the start of the next in line, are written and not committed",
    ),
    _after("worker/reports.py", "worker.finish.after_commit", WORKER, "its end is committed, the worker does not know"),
    _at("worker/service.py", "worker.drain.before_hand_back", WORKER, "a stopping worker takes nothing more"),
    _at("worker/service.py", "worker.drain.before_leave", WORKER, "a stopping worker is empty and still counts"),
)

_POINTS: Final = (
    *_ACCEPTANCE,
    *_COMMITS,
    *_MESSAGES,
    *_DEAD_LETTERS,
    *_PLACEMENT,
    *_SWEEPS,
    *_WORKERS,
)
DECLARED: Final[Mapping[str, Declared]] = MappingProxyType({point.name: point for point in _POINTS})
