"""Every setting there is: its name, type, default, range, meaning, and whether it is secret.

The classes below, and those of `worker.py` and what it imports, are the only place a setting is declared. The loader,
`attune config show` and the reference page are all derived from them, so a new setting is one new line here.
"""
# ruff: noqa: RUF009  The calls in the defaults below are the declarations; they share no state.

import re
import urllib.parse
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from attune.runtime.secret import Secret
from attune.runtime.settings.declare import Rules, section, setting
from attune.runtime.settings.worker import WorkerSettings

DAY_MS: Final = 86_400_000
YEAR_SECONDS: Final = 31_536_000
YEARS_10_DAYS: Final = 3650


class LogLevel(StrEnum):
    """The least important kind of log line that is still written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class LogFormat(StrEnum):
    """How log lines look; `auto` is pretty on a terminal and JSON elsewhere."""

    AUTO = "auto"
    JSON = "json"
    PRETTY = "pretty"


class TransportKind(StrEnum):
    """Which engine carries messages between the services."""

    POSTGRES = "postgres"
    RABBITMQ = "rabbitmq"


def _put_password(url: Secret, password: Secret | None) -> Secret:
    """Write a password that was given apart from its URL into it."""
    if password is None:
        return url
    parts = urllib.parse.urlsplit(url.reveal())
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    quoted = urllib.parse.quote(password.reveal(), safe="")
    return Secret(parts._replace(netloc=f"{name}:{quoted}@{host}").geturl())


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    """Where the state lives."""

    url: Secret | None = setting(
        None,
        Rules(
            doc="PostgreSQL to use, as a libpq URL. Not set: the embedded one in the home.",
            pattern=re.compile(r"postgres(ql)?://\S*"),
            pattern_meaning="a URL that begins with postgresql://",
            secret=True,
        ),
    )
    password: Secret | None = setting(
        None, Rules(doc="Password for `database.url`, if the URL does not carry it.", secret=True)
    )
    pool_size: int = setting(10, Rules(doc="Most connections one process keeps open.", minimum=2, maximum=500))
    embedded_user: str | None = setting(
        None,
        Rules(
            doc="Account that runs the embedded PostgreSQL when Attune is started as root.",
            default_shown="the first of attune, postgres, nobody that exists",
        ),
    )
    bin_dir: Path | None = setting(
        None,
        Rules(
            doc="Directory with initdb and postgres to use for the embedded PostgreSQL.",
            default_shown="the installed package's",
        ),
    )

    @property
    def full_url(self) -> Secret | None:
        """The URL with the separately given password in its place."""
        return None if self.url is None else _put_password(self.url, self.password)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSettings:
    """What becomes of messages nobody took in time."""

    enabled: bool = setting(
        default=True, rules=Rules(doc="Whether untaken dispatches are dead-lettered; off leaves the time-out.")
    )
    exchange: str = setting(
        "attune.dlx",
        Rules(
            doc="Name of the dead-letter exchange.",
            pattern=re.compile(r"[\w.:-]{1,127}"),
            pattern_meaning="1 to 127 letters, digits, dots, dashes, colons or underscores",
        ),
    )
    ttl_ms: int = setting(
        DAY_MS,
        Rules(
            doc="Milliseconds a dead letter is kept, with what became of it. Both transports.",
            minimum=1000,
            maximum=365 * DAY_MS,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitmqSettings:
    """Life times of messages; the PostgreSQL transport obeys them too."""

    worker_queue_ttl_ms: int = setting(
        300_000,
        Rules(
            doc="Milliseconds a dispatch may wait for its worker; keep it at or above"
            " `executor.scheduled_timeout`. Both transports.",
            minimum=100,
            maximum=7 * DAY_MS,
        ),
    )
    dead_letter: DeadLetterSettings = section(DeadLetterSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueueSettings:
    """What carries messages between the services."""

    url: Secret = setting(
        Secret("postgres:"),
        Rules(
            doc="`postgres:` to use the database itself, or an amqp:// or amqps:// URL.",
            pattern=re.compile(r"postgres:|amqps?://\S+"),
            pattern_meaning="postgres: or a URL that begins with amqp:// or amqps://",
            secret=True,
        ),
    )
    password: Secret | None = setting(None, Rules(doc="Password for an amqp URL that does not carry it.", secret=True))
    publish_status: bool = setting(
        default=False, rules=Rules(doc="Whether every status change is also published, for integrations.")
    )
    rabbitmq: RabbitmqSettings = section(RabbitmqSettings)

    @property
    def transport(self) -> TransportKind:
        """Which transport the URL asks for."""
        embedded = self.url.reveal() == "postgres:"
        return TransportKind.POSTGRES if embedded else TransportKind.RABBITMQ

    @property
    def full_url(self) -> Secret:
        """The URL with the separately given password in its place."""
        if self.transport is TransportKind.POSTGRES:
            return self.url
        return _put_password(self.url, self.password)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """The HTTP server."""

    host: str = setting("127.0.0.1", Rules(doc="Address the API listens on."))
    port: int = setting(8080, Rules(doc="Port the API listens on.", minimum=1, maximum=65_535))
    body_max_bytes: int = setting(
        1_048_576,
        Rules(doc="Largest request body; a larger one is refused with 413.", minimum=1024, maximum=104_857_600),
    )
    wait_max_seconds: float = setting(
        60.0, Rules(doc="Longest time `?wait=` keeps a request open.", minimum=0, maximum=3600)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Limits of a line whose policy does not say otherwise."""

    max_queue_length: int = setting(
        10_000,
        Rules(
            doc="Most executions that may wait in one line; beyond it requests are refused.",
            minimum=1,
            maximum=10_000_000,
        ),
    )
    queue_timeout_seconds: float = setting(
        3600.0, Rules(doc="Seconds an execution may wait in line before it fails.", minimum=1, maximum=YEAR_SECONDS)
    )
    enable_metrics: bool = setting(
        default=True,
        rules=Rules(doc="Whether a history of lines is kept, minute by minute, and their numbers published."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorSettings:
    """Admission, placement and recovery."""

    batch_max: int = setting(
        500, Rules(doc="Most messages handled in one transaction; 1 handles them one by one.", minimum=1, maximum=1000)
    )
    scheduled_timeout: float = setting(
        300.0,
        Rules(doc="Seconds a placed execution may wait for its worker to start it.", minimum=0.1, maximum=604_800),
    )
    timeout_check_interval: float = setting(
        60.0,
        Rules(doc="Seconds between two looks for placed executions that were not started.", minimum=0.1, maximum=3600),
    )
    health_check_interval: float = setting(
        30.0, Rules(doc="Seconds between two pings of each worker.", minimum=0.1, maximum=3600)
    )
    placements_max: int = setting(
        5, Rules(doc="How often an execution that never started is placed before it fails.", minimum=1, maximum=100)
    )
    no_worker_grace_seconds: float = setting(
        0.0,
        Rules(
            doc="Seconds a request may wait for a capable worker to appear before it fails.", minimum=0, maximum=86_400
        ),
    )
    queue: QueueSettings = section(QueueSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What the services write about themselves."""

    level: LogLevel = setting(LogLevel.INFO, Rules(doc="Least important line still written."))
    format: LogFormat = setting(LogFormat.AUTO, Rules(doc="`auto` is pretty on a terminal and JSON elsewhere."))


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """What protects stored secrets."""

    key_file: Path | None = setting(
        None,
        Rules(
            doc="File with the key that seals stored secrets; readable by its owner only.",
            default_shown="secrets/master.key in the home",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long finished things are kept."""

    executions_days: int = setting(
        30, Rules(doc="Days ended executions and their secrets are kept.", minimum=1, maximum=YEARS_10_DAYS)
    )
    events_days: int = setting(30, Rules(doc="Days events and verdicts are kept.", minimum=1, maximum=YEARS_10_DAYS))
    history_days: int = setting(
        7, Rules(doc="Days state changes and admissions are kept.", minimum=1, maximum=YEARS_10_DAYS)
    )
    line_history_days: int = setting(
        30, Rules(doc="Days the history of lines is kept.", minimum=1, maximum=YEARS_10_DAYS)
    )
    logs_days: int = setting(30, Rules(doc="Days the output of actions is kept.", minimum=1, maximum=YEARS_10_DAYS))
    artifacts_days: int = setting(
        30, Rules(doc="Days artifacts are kept: results too large for a row.", minimum=1, maximum=YEARS_10_DAYS)
    )
    audit_days: int = setting(90, Rules(doc="Days audit rows are kept.", minimum=1, maximum=YEARS_10_DAYS))
    idempotency_hours: int = setting(24, Rules(doc="Hours an Idempotency-Key is remembered.", minimum=1, maximum=8760))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How messages that fail are handled again."""

    deliveries_max: int = setting(
        5, Rules(doc="Failed deliveries after which a message is parked.", minimum=1, maximum=100)
    )
    suspect_seconds: float = setting(
        30.0, Rules(doc="Age from which a message is handled alone.", minimum=0.1, maximum=86_400)
    )
    backoff_seconds: float = setting(
        1.0,
        Rules(doc="Pause after a first failed delivery; it doubles with each further one.", minimum=0, maximum=3600),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxSettings:
    """Messages that were committed and not yet carried."""

    refuse_above: int = setting(
        50_000, Rules(doc="Due messages above which the API answers 503.", minimum=1, maximum=100_000_000)
    )
    accept_below: int = setting(
        40_000, Rules(doc="Due messages below which it accepts again.", minimum=0, maximum=100_000_000)
    )
    relay_interval: float = setting(
        1.0, Rules(doc="Seconds between two looks for overdue messages.", minimum=0.05, maximum=60)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one process, checked and complete."""

    environment: str | None = setting(
        None,
        Rules(
            doc="Selects `config.{environment}.yaml`; also read from ATTUNE_ENVIRONMENT.",
            pattern=re.compile(r"[A-Za-z0-9_-]{1,64}"),
            pattern_meaning="1 to 64 letters, digits, dashes or underscores",
        ),
    )
    database: DatabaseSettings = section(DatabaseSettings)
    message_queue: MessageQueueSettings = section(MessageQueueSettings)
    api: ApiSettings = section(ApiSettings)
    executor: ExecutorSettings = section(ExecutorSettings)
    worker: WorkerSettings = section(WorkerSettings)
    log: LogSettings = section(LogSettings)
    security: SecuritySettings = section(SecuritySettings)
    retention: RetentionSettings = section(RetentionSettings)
    consumer: ConsumerSettings = section(ConsumerSettings)
    outbox: OutboxSettings = section(OutboxSettings)
