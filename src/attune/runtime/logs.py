"""Writes logs as facts: JSON for machines, aligned lines on a terminal, secrets masked in both."""

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import BinaryIO, Final, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from attune.runtime.redact import redact_field
from attune.runtime.settings.schema import LogFormat, LogLevel

_LEVELS: Final[Mapping[LogLevel, int]] = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.CRITICAL: logging.CRITICAL,
}
# These say at INFO and DEBUG what our own lines say better.
_TALKATIVE: Final = ("aio_pika", "aiormq", "asyncio", "httpcore2", "httpx2", "uvicorn.access")


def configure_logs(
    service: str,
    level: LogLevel = LogLevel.INFO,
    format: LogFormat = LogFormat.AUTO,  # noqa: A002  the setting's name
    *,
    stream: BinaryIO | None = None,
) -> None:
    """Set up this process's logs, those of libraries included. Call once, before the first line."""
    target = stream or sys.stderr.buffer
    terminal = target.isatty()
    pretty = format is LogFormat.PRETTY or (format is LogFormat.AUTO and terminal)
    structlog.configure(
        processors=_processors(service, pretty=pretty, colors=terminal and not os.environ.get("NO_COLOR")),
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", _Lines(target))),
        cache_logger_on_first_use=True,
    )
    _route_standard_loggers(_LEVELS[level])


def _processors(service: str, *, pretty: bool, colors: bool) -> list[Processor]:
    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    return [
        structlog.contextvars.merge_contextvars,
        add_service,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,  # Before redaction: a traceback may quote a secret.
        redact_event,
        _pretty_renderer(colors=colors) if pretty else render_json,
    ]


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask secrets; runs after everything that adds fields and before anything is written."""
    return {name: redact_field(name, value) for name, value in event.items()}


def render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    """One JSON document per line; what cannot be encoded is described rather than lost."""
    try:
        return msgspec.json.encode(event, enc_hook=repr)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return json.dumps({str(name): value for name, value in event.items()}, default=repr).encode()


def _pretty_renderer(*, colors: bool) -> Processor:
    # The plain formatter: the default one prints local variables, secrets among them.
    console = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)

    def render(logger: WrappedLogger, method: str, event: EventDict) -> bytes:
        return console(logger, method, event).encode(errors="replace")

    return render


class _Lines:
    """A stream whose failure is not the service's: with the disk full, lines are dropped, not work."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, line: bytes) -> int:
        try:
            return self._target.write(line)
        except (OSError, ValueError):
            return len(line)

    def flush(self) -> None:
        try:
            self._target.flush()
        except (OSError, ValueError):
            return


class _ToStructlog(logging.Handler):
    """Hands a library's log record to our own chain, so that there is one format and one redaction."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            logger = structlog.get_logger()
            logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None)
        except Exception:  # noqa: BLE001  the logging module's own contract for handlers
            self.handleError(record)


def _route_standard_loggers(level: int) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _ToStructlog):
            root.removeHandler(handler)
    root.addHandler(_ToStructlog())
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    logging.captureWarnings(capture=True)
