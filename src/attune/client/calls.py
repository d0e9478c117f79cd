"""Every request this client knows, as data: what to send and what the answer means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from urllib.parse import quote

from attune.client.models import (
    Accepted,
    Action,
    Admission,
    Alert,
    Artifact,
    Cleared,
    DeadLetter,
    DeadLetterStats,
    Drained,
    Execution,
    Explanation,
    LateResult,
    Line,
    LineStep,
    Login,
    LogLine,
    Pack,
    Page,
    Token,
    Worker,
)

T = TypeVar("T")
Query = str | int | float

# A long line is cleared in many steps before the answer comes.
CLEAR_SECONDS_MAX = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request, ready to be sent by either client."""

    method: str
    path: str
    answer: type[T]
    query: Mapping[str, Query] = field(default_factory=dict)
    body: Mapping[str, object] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Time the server may take on purpose, beyond the time any answer may take.
    patience_seconds: float = 0.0


def request_execution(
    action_ref: str,
    parameters: Mapping[str, object],
    *,
    trace_tag: str | None = None,
    wait_seconds: float = 0.0,
    idempotency_key: str | None = None,
) -> Call[Execution]:
    """Ask for a run; with `wait_seconds` the answer comes when it ended, or after that time."""
    body: dict[str, object] = {"action_ref": action_ref, "parameters": dict(parameters)}
    if trace_tag is not None:
        body["trace_tag"] = trace_tag
    return Call(
        method="POST",
        path="/api/v1/executions",
        answer=Execution,
        query={"wait": wait_seconds} if wait_seconds else {},
        body=body,
        headers={"Idempotency-Key": idempotency_key} if idempotency_key else {},
        patience_seconds=wait_seconds,
    )


def request_executions(wanted: Sequence[Mapping[str, object]], *, idempotency_key: str | None = None) -> Call[Accepted]:
    """Ask for many runs at once, each with the fields of a single request; all are accepted in this order, or none."""
    return Call(
        method="POST",
        path="/api/v1/executions:batch",
        answer=Accepted,
        body={"executions": [*map(dict, wanted)]},
        headers={"Idempotency-Key": idempotency_key} if idempotency_key else {},
    )


def list_executions(**query: Query | None) -> Call[Page[Execution]]:
    return Call(method="GET", path="/api/v1/executions", answer=Page[Execution], query=_given(query))


def get_execution(execution_id: int) -> Call[Execution]:
    return Call(method="GET", path=f"/api/v1/executions/{execution_id}", answer=Execution)


def get_logs(execution_id: int, **query: Query | None) -> Call[Page[LogLine]]:
    path = f"/api/v1/executions/{execution_id}/logs"
    return Call(method="GET", path=path, answer=Page[LogLine], query=_given(query))


def follow_logs(execution_id: int, *, stream: str | None = None, after: str | None = None) -> Call[bytes]:
    """What an execution writes, as it comes; `after` is the id of the last event that was seen."""
    return Call(
        method="GET",
        path=f"/api/v1/executions/{execution_id}/logs/stream",
        answer=bytes,
        query=_given({"stream": stream}),
        headers={"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})},
    )


def list_artifacts(**query: Query | None) -> Call[Page[Artifact]]:
    return Call(method="GET", path="/api/v1/artifacts", answer=Page[Artifact], query=_given(query))


def get_artifact(artifact_id: int) -> Call[Artifact]:
    return Call(method="GET", path=f"/api/v1/artifacts/{artifact_id}", answer=Artifact)


def get_artifact_content(artifact_id: int) -> Call[bytes]:
    return Call(method="GET", path=f"/api/v1/artifacts/{artifact_id}/content", answer=bytes)


def get_history(execution_id: int) -> Call[object]:
    return Call(method="GET", path=f"/api/v1/executions/{execution_id}/history", answer=object)


def list_late_results(execution_id: int) -> Call[list[LateResult]]:
    return Call(method="GET", path=f"/api/v1/executions/{execution_id}/late-results", answer=list[LateResult])


def cancel_execution(execution_id: int, *, force: bool = False) -> Call[Execution]:
    path = f"/api/v1/executions/{execution_id}/cancel"
    return Call(method="POST", path=path, answer=Execution, query={"force": "true"} if force else {}, body={})


def explain_execution(execution_id: int) -> Call[Explanation]:
    return Call(method="GET", path=f"/api/v1/executions/{execution_id}/why", answer=Explanation)


def list_lines(**query: Query | None) -> Call[Page[Line]]:
    return Call(method="GET", path="/api/v1/lines", answer=Page[Line], query=_given(query))


def get_line(line_id: int) -> Call[Line]:
    return Call(method="GET", path=f"/api/v1/lines/{line_id}", answer=Line)


def list_admissions(line_id: int, **query: Query | None) -> Call[Page[Admission]]:
    path = f"/api/v1/lines/{line_id}/admissions"
    return Call(method="GET", path=path, answer=Page[Admission], query=_given(query))


def pause_line(line_id: int) -> Call[Line]:
    return Call(method="POST", path=f"/api/v1/lines/{line_id}/pause", answer=Line, body={})


def resume_line(line_id: int) -> Call[Line]:
    return Call(method="POST", path=f"/api/v1/lines/{line_id}/resume", answer=Line, body={})


def clear_line(line_id: int) -> Call[Cleared]:
    path = f"/api/v1/lines/{line_id}/clear"
    return Call(method="POST", path=path, answer=Cleared, body={}, patience_seconds=CLEAR_SECONDS_MAX)


def clear_all_lines() -> Call[Cleared]:
    return Call(method="POST", path="/api/v1/lines:clear", answer=Cleared, body={}, patience_seconds=CLEAR_SECONDS_MAX)


def list_dead_letters(**query: Query | None) -> Call[Page[DeadLetter]]:
    return Call(method="GET", path="/api/v1/dead-letters", answer=Page[DeadLetter], query=_given(query))


def get_dead_letter(dead_letter_id: int) -> Call[DeadLetter]:
    return Call(method="GET", path=f"/api/v1/dead-letters/{dead_letter_id}", answer=DeadLetter)


def get_dead_letter_stats(**query: Query | None) -> Call[DeadLetterStats]:
    return Call(method="GET", path="/api/v1/dead-letters/stats", answer=DeadLetterStats, query=_given(query))


def replay_dead_letter(dead_letter_id: int) -> Call[object]:
    return Call(method="POST", path=f"/api/v1/dead-letters/{dead_letter_id}/replay", answer=object, body={})


def replay_dead_letters(**query: Query | None) -> Call[object]:
    return Call(method="POST", path="/api/v1/dead-letters:replay", answer=object, query=_given(query), body={})


def drop_dead_letter(dead_letter_id: int) -> Call[object]:
    return Call(method="POST", path=f"/api/v1/dead-letters/{dead_letter_id}/drop", answer=object, body={})


def drop_dead_letters(**query: Query | None) -> Call[object]:
    return Call(method="POST", path="/api/v1/dead-letters:drop", answer=object, query=_given(query), body={})


def list_alerts(**query: Query | None) -> Call[Page[Alert]]:
    return Call(method="GET", path="/api/v1/alerts", answer=Page[Alert], query=_given(query))


def get_alert(alert_id: int) -> Call[Alert]:
    return Call(method="GET", path=f"/api/v1/alerts/{alert_id}", answer=Alert)


def get_queue_stats(ref: str) -> Call[object]:
    return Call(method="GET", path=f"/api/v1/actions/{_segment(ref)}/queue-stats", answer=object)


def list_queue_stats_history(ref: str, **query: Query | None) -> Call[Page[LineStep]]:
    path = f"/api/v1/actions/{_segment(ref)}/queue-stats/history"
    return Call(method="GET", path=path, answer=Page[LineStep], query=_given(query))


def list_actions(**query: Query | None) -> Call[Page[Action]]:
    return Call(method="GET", path="/api/v1/actions", answer=Page[Action], query=_given(query))


def get_action(ref: str) -> Call[Action]:
    return Call(method="GET", path=f"/api/v1/actions/{_segment(ref)}", answer=Action)


def release_action(ref: str) -> Call[Action]:
    return Call(method="POST", path=f"/api/v1/actions/{_segment(ref)}/release", answer=Action, body={})


def list_packs(**query: Query | None) -> Call[Page[Pack]]:
    return Call(method="GET", path="/api/v1/packs", answer=Page[Pack], query=_given(query))


def install_pack(directory: str) -> Call[Pack]:
    """Install from a folder on the server's machine."""
    return Call(
        method="POST",
        path="/api/v1/packs:install",
        answer=Pack,
        body={"path": directory},
        patience_seconds=120.0,
    )


def list_workers(**query: Query | None) -> Call[Page[Worker]]:
    return Call(method="GET", path="/api/v1/workers", answer=Page[Worker], query=_given(query))


def get_worker(worker_id: int) -> Call[Worker]:
    return Call(method="GET", path=f"/api/v1/workers/{worker_id}", answer=Worker)


def cordon_worker(worker_id: int) -> Call[Worker]:
    return Call(method="POST", path=f"/api/v1/workers/{worker_id}/cordon", answer=Worker, body={})


def uncordon_worker(worker_id: int) -> Call[Worker]:
    return Call(method="POST", path=f"/api/v1/workers/{worker_id}/uncordon", answer=Worker, body={})


def drain_worker(worker_id: int) -> Call[Drained]:
    return Call(method="POST", path=f"/api/v1/workers/{worker_id}/drain", answer=Drained, body={})


def get_scaling() -> Call[object]:
    return Call(method="GET", path="/api/v1/workers/scaling", answer=object)


def create_token(name: str, permission_set: str | None = None) -> Call[Token]:
    body: dict[str, object] = {"name": name}
    if permission_set is not None:
        body["permission_set"] = permission_set
    return Call(method="POST", path="/api/v1/tokens", answer=Token, body=body)


def log_in(login: str, password: str) -> Call[Login]:
    return Call(method="POST", path="/auth/login", answer=Login, body={"login": login, "password": password})


def _given(query: Mapping[str, Query | None]) -> dict[str, Query]:
    return {name: value for name, value in query.items() if value is not None}


def _segment(text: str) -> str:
    return quote(text, safe="")
