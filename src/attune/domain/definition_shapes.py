"""The shape of pack, action and policy documents, as JSON Schemas: the same for files and for the API.

What a schema cannot say (which keys go together) is checked in `definition_documents`.
"""

from enum import StrEnum

from attune.domain.definitions import (
    Backoff,
    ContainerNetwork,
    Isolation,
    LimitMethod,
    OnRetry,
    OnWorkerLost,
    OutputFormat,
    ParameterDelivery,
    ParameterFormat,
    Pull,
    RateMethod,
    RetryReason,
    Runner,
    ScopeKind,
)
from attune.domain.json_schema import DIALECT
from attune.domain.json_values import Json

LABEL_LENGTH_MAX = 200
DESCRIPTION_LENGTH_MAX = 10_000
COMMAND_LENGTH_MAX = 64 * 1024
ENTRY_POINT_LENGTH_MAX = 500
VERSION_PATTERN = r"^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$"
MODULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
PRELOADED_MAX = 50
ATTEMPTS_MAX = 100
SECONDS_MAX = 7 * 24 * 3600
LABELS_MAX = 32
CONCURRENCY_MAX = 100_000
QUEUE_LENGTH_MAX = 10_000_000
RATE_MAX = 1_000_000
PRIORITY_MAX = 1000
GROUPING_PARAMETERS_MAX = 8
EXIT_CODE_MAX = 255
# Begins like a name, so that no program takes it for one of its options.
IMAGE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
MEMORY_MB_MIN, MEMORY_MB_MAX = 8, 1_048_576
PROCESSES_MAX = 100_000
CPUS_MIN, CPUS_MAX = 0.01, 1024


def _closed(properties: dict[str, Json], *, required: list[Json] | None = None) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": required or [], "additionalProperties": False}


def _text(length_max: int, *, length_min: int = 0) -> dict[str, Json]:
    return {"type": "string", "minLength": length_min, "maxLength": length_max}


def _one_of(choices: type[StrEnum]) -> dict[str, Json]:
    return {"type": "string", "enum": [choice.value for choice in choices]}


def _integer(lowest: int, highest: int) -> dict[str, Json]:
    return {"type": "integer", "minimum": lowest, "maximum": highest}


def _seconds(*, zero: bool) -> dict[str, Json]:
    return {"type": "number", "minimum" if zero else "exclusiveMinimum": 0, "maximum": SECONDS_MAX}


_NAMED: dict[str, Json] = {
    # The reference's own rule is checked in `refs`, whose messages say how to repair it.
    "ref": {"type": "string"},
    "label": _text(LABEL_LENGTH_MAX),
    "description": _text(DESCRIPTION_LENGTH_MAX),
}

_RETRY = _closed(
    {
        "max_attempts": _integer(1, ATTEMPTS_MAX),
        "delay_seconds": _seconds(zero=True),
        "backoff": _one_of(Backoff),
        "max_delay_seconds": _seconds(zero=True),
        "retry_on": {
            "type": "array",
            "maxItems": EXIT_CODE_MAX + len(RetryReason),
            "uniqueItems": True,
            "items": {
                "if": {"type": "integer"},
                "then": _integer(1, EXIT_CODE_MAX),
                "else": _one_of(RetryReason),
            },
        },
    }
)

_PYTHON = _closed(
    {
        "fork_server": {"type": "boolean"},
        "preload": {
            "type": "array",
            "maxItems": PRELOADED_MAX,
            "uniqueItems": True,
            "items": {"type": "string", "pattern": MODULE_PATTERN, "maxLength": LABEL_LENGTH_MAX},
        },
    }
)

_CONTAINER = _closed(
    {
        "network": _one_of(ContainerNetwork),
        "memory_mb": _integer(MEMORY_MB_MIN, MEMORY_MB_MAX),
        "processes": _integer(1, PROCESSES_MAX),
        "cpus": {"type": "number", "minimum": CPUS_MIN, "maximum": CPUS_MAX},
        "pull": _one_of(Pull),
    }
)

PACK_SHAPE: dict[str, Json] = {
    "$schema": DIALECT,
    "title": "Attune pack",
    **_closed(
        {
            **_NAMED,
            "version": {"type": "string", "pattern": VERSION_PATTERN},
            "config_schema": {"type": "object"},
            "python": _PYTHON,
        },
        required=["ref", "version"],
    ),
}

ACTION_SHAPE: dict[str, Json] = {
    "$schema": DIALECT,
    "title": "Attune action",
    **_closed(
        {
            **_NAMED,
            "runner": _one_of(Runner),
            "entry_point": _text(ENTRY_POINT_LENGTH_MAX, length_min=1),
            "command": _text(COMMAND_LENGTH_MAX, length_min=1),
            "command_from": _text(LABEL_LENGTH_MAX, length_min=1),
            "image": {"type": "string", "pattern": IMAGE_PATTERN, "maxLength": LABEL_LENGTH_MAX},
            "container": _CONTAINER,
            "http": {"type": "object"},
            "parameters": {"type": "object"},
            "output": {"type": "object"},
            "parameter_delivery": _one_of(ParameterDelivery),
            "parameter_format": _one_of(ParameterFormat),
            "output_format": _one_of(OutputFormat),
            "timeout_seconds": _integer(1, SECONDS_MAX),
            "worker_queue_ttl_seconds": _seconds(zero=False),
            "retry": _RETRY,
            "idempotent": {"type": "boolean"},
            "on_worker_lost": _one_of(OnWorkerLost),
            "labels": {
                "type": "object",
                "maxProperties": LABELS_MAX,
                "additionalProperties": _text(LABEL_LENGTH_MAX),
            },
            "isolation": _one_of(Isolation),
            "enabled": {"type": "boolean"},
        },
        required=["ref", "runner"],
    ),
}

_SCOPE: dict[str, Json] = {
    "if": {"type": "object"},
    "then": {
        **_closed({kind.value: {"type": "string"} for kind in (ScopeKind.ACTION, ScopeKind.PACK)}),
        "minProperties": 1,
        "maxProperties": 1,
    },
    "else": {"type": ["string", "object"]},
}

_CONCURRENCY = _closed(
    {
        "limit": _integer(1, CONCURRENCY_MAX),
        "method": _one_of(LimitMethod),
        "parameters": {
            "type": "array",
            "items": _text(LABEL_LENGTH_MAX, length_min=1),
            "maxItems": GROUPING_PARAMETERS_MAX,
            "uniqueItems": True,
        },
    },
    required=["limit"],
)

_ADAPTIVE = _closed(
    {
        "min": _integer(1, CONCURRENCY_MAX),
        "max": _integer(1, CONCURRENCY_MAX),
        "target": {
            **_closed(
                {
                    "failure_rate": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                    "latency_seconds": _seconds(zero=False),
                }
            ),
            "minProperties": 1,
        },
    },
    required=["min", "max"],
)

POLICY_SHAPE: dict[str, Json] = {
    "$schema": DIALECT,
    "title": "Attune policy",
    **_closed(
        {
            **_NAMED,
            "scope": _SCOPE,
            "concurrency": _CONCURRENCY,
            "rate_limit": _closed(
                {
                    "max": _integer(1, RATE_MAX),
                    "window_seconds": _seconds(zero=False),
                    "method": _one_of(RateMethod),
                },
                required=["max", "window_seconds"],
            ),
            "quota": _closed({"per_day": _integer(1, QUEUE_LENGTH_MAX)}, required=["per_day"]),
            "adaptive": _ADAPTIVE,
            "max_queue_length": _integer(1, QUEUE_LENGTH_MAX),
            "queue_timeout_seconds": _integer(1, SECONDS_MAX),
            "priority": _integer(-PRIORITY_MAX, PRIORITY_MAX),
            "on_retry": _one_of(OnRetry),
            "enabled": {"type": "boolean"},
        },
        required=["ref", "scope"],
    ),
}
