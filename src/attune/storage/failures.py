"""What a failed statement says about its transaction."""

import asyncpg

# The server itself answered, so nothing of the transaction remains; trying again is safe.
_CERTAIN = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.DataError,
)
_UNKNOWN: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)


def outcome_is_unknown(error: BaseException) -> bool:
    """Whether the transaction may have been committed all the same: its answer, or the server, was lost."""
    return isinstance(error, _UNKNOWN) and not isinstance(error, _CERTAIN)
