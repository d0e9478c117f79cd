"""What each failure means for a script: the exit codes, and the one place that chooses among them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """The exit codes of the command line."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    NOT_FOUND = 4
    INVALID = 5
    TIMEOUT = 6
    UNREACHABLE = 7
    INTERRUPTED = 130


class CommandFailed(Exception):
    """A command cannot do what was asked; the message is one line: the thing, the place, the cure."""

    def __init__(self, message: str, *, exit_code: Exit = Exit.FAILED, details: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.details = tuple(details)


class UsageFailed(CommandFailed):
    """The words on the command line make no sense."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=Exit.USAGE)


# By name, because importing every family would make `attune --version` slow; subclasses find their nearest ancestor.
_EXIT_BY_CLASS: Final[Mapping[str, Exit]] = {
    "attune.client.errors.Unreachable": Exit.UNREACHABLE,
    "attune.client.errors.TimedOut": Exit.TIMEOUT,
    "attune.client.errors.NoAnswer": Exit.FAILED,
    "attune.domain.errors.Unauthenticated": Exit.AUTH,
    "attune.domain.errors.Forbidden": Exit.AUTH,
    "attune.domain.errors.NotFound": Exit.NOT_FOUND,
    "attune.domain.errors.Invalid": Exit.INVALID,
    "attune.domain.errors.Conflict": Exit.INVALID,
    "attune.storage.migrate.SchemaMismatch": Exit.INVALID,
    "attune.domain.errors.Unavailable": Exit.UNREACHABLE,
    "attune.runtime.settings.problems.SettingsError": Exit.INVALID,
    "attune.runtime.home.HomeUnusable": Exit.FAILED,
    "attune.runtime.keys.KeyFileUnusable": Exit.FAILED,
    "attune.runtime.postgres_server.errors.ServerError": Exit.FAILED,
}
_EXIT_BY_STATUS: Final[Mapping[int, Exit]] = {
    401: Exit.AUTH,
    403: Exit.AUTH,
    404: Exit.NOT_FOUND,
    408: Exit.TIMEOUT,
    502: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
    504: Exit.TIMEOUT,
}
_SERVER_ERRORS: Final = 500
# PostgreSQL's class of errors about who is asking.
_SQLSTATE_AUTHORIZATION: Final = "28"


def exit_code_of(error: BaseException) -> Exit | None:
    """The exit code an expected error asks for; None for a bug."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    status = getattr(error, "status", None)
    if type(error).__module__ == "attune.client.errors" and isinstance(status, int):
        return _EXIT_BY_STATUS.get(status, Exit.FAILED if status >= _SERVER_ERRORS else Exit.INVALID)
    for ancestor in type(error).__mro__:
        found = _EXIT_BY_CLASS.get(f"{ancestor.__module__}.{ancestor.__qualname__}")
        if found is not None:
            return found
    return None


def describe(error: BaseException) -> list[str]:
    """The error as lines for a person: what is wrong first, then one line per detail."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    details = error.details if isinstance(error, CommandFailed) else getattr(error, "fields", ())
    for detail in details:
        pointer, message = getattr(detail, "pointer", None), getattr(detail, "message", None)
        if len(details) == 1 and message and message in lines[0]:
            continue  # A single thing wrong was said already.
        lines.append(f"  {pointer or '/'}: {message}" if message is not None else f"  {detail}")
    return lines


@contextmanager
def database_errors(url: str, *, embedded: bool = False) -> Iterator[None]:
    """Turn what the driver and the network raise into one line that names the database and the cure."""
    from attune.runtime.secret import mask_url_password

    place = mask_url_password(url)
    try:
        yield
    except (OSError, TimeoutError) as error:
        reason = str(error) or type(error).__name__
        cure = (
            "Start the platform with `attune up`" if embedded else "Check database.url and that PostgreSQL runs there"
        )
        message = f"the database {place} cannot be reached: {reason}. {cure}"
        raise CommandFailed(message, exit_code=Exit.UNREACHABLE) from error
    except Exception as error:
        state = getattr(error, "sqlstate", None)
        if not isinstance(state, str):
            raise
        raise _from_sqlstate(state, place, error) from error


def _from_sqlstate(state: str, place: str, error: Exception) -> CommandFailed:
    if state.startswith(_SQLSTATE_AUTHORIZATION):
        message = f"the database {place} refuses us: {error}. Check the user and password in database.url"
        return CommandFailed(message, exit_code=Exit.AUTH)
    if state == "3D000":
        message = f"the database {place} does not exist: {error}. Create it, or correct database.url"
        return CommandFailed(message, exit_code=Exit.NOT_FOUND)
    return CommandFailed(f"the database {place} refuses us: {error} ({state})", exit_code=Exit.UNREACHABLE)
