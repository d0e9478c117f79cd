"""A document describes an action or a policy, or every reason why it does not is named."""

import pytest

from attune.domain.definition_documents import (
    BadDefinition,
    action_from_mapping,
    mapping_of,
    pack_from_mapping,
    policy_from_mapping,
)
from attune.domain.definition_shapes import ACTION_SHAPE, PACK_SHAPE, POLICY_SHAPE
from attune.domain.definitions import (
    Backoff,
    Concurrency,
    OnRetry,
    OutputFormat,
    PolicyScope,
    Quota,
    RateLimit,
    RetryPolicy,
    RetryReason,
    Runner,
    ScopeKind,
)
from attune.domain.json_schema import find_schema_errors
from attune.domain.json_values import Json

ACTION: dict[str, Json] = {"ref": "demo.slow", "runner": "shell", "command": "true"}
POLICY: dict[str, Json] = {"ref": "demo.limit", "scope": {"action": "demo.slow"}, "concurrency": {"limit": 2}}


def action_errors(**changes: Json) -> dict[str, str]:
    with pytest.raises(BadDefinition) as refused:
        action_from_mapping({key: value for key, value in {**ACTION, **changes}.items() if value != "absent"})
    return {error.pointer: error.message for error in refused.value.fields}


def policy_errors(**changes: Json) -> dict[str, str]:
    with pytest.raises(BadDefinition) as refused:
        policy_from_mapping({key: value for key, value in {**POLICY, **changes}.items() if value != "absent"})
    return {error.pointer: error.message for error in refused.value.fields}


def test_a_short_action_has_the_documented_defaults() -> None:
    action = action_from_mapping(ACTION)
    assert (action.runner, action.output_format, action.timeout_seconds) == (Runner.SHELL, OutputFormat.TEXT, 600)
    assert action.retry == RetryPolicy(max_attempts=1)
    assert (action.idempotent, action.enabled, action.on_worker_lost, action.isolation) == (False, True, None, None)


def test_a_retry_policy_keeps_reasons_and_exit_codes() -> None:
    retry: Json = {"max_attempts": 3, "delay_seconds": 0.5, "backoff": "linear", "retry_on": ["worker_lost", 75]}
    assert action_from_mapping({**ACTION, "retry": retry}).retry == RetryPolicy(
        max_attempts=3, delay_seconds=0.5, backoff=Backoff.LINEAR, retry_on=frozenset({RetryReason.WORKER_LOST, 75})
    )


def test_a_policy_is_read_whole() -> None:
    document: dict[str, Json] = {
        **POLICY,
        "concurrency": {"limit": 2, "parameters": ["host", "a.b"]},
        "rate_limit": {"max": 10, "window_seconds": 0.5},
        "quota": {"per_day": 100},
        "on_retry": "back",
    }
    policy = policy_from_mapping(document)
    assert policy.scope == PolicyScope(kind=ScopeKind.ACTION, ref="demo.slow")
    assert policy.concurrency == Concurrency(limit=2, parameters=("host", "a.b"))
    assert policy.rate_limit == RateLimit(max=10, window_seconds=0.5)
    assert policy.quota == Quota(per_day=100)
    assert policy.on_retry is OnRetry.BACK
    assert policy.max_queue_length is None


@pytest.mark.parametrize(
    "scope", [{"action": "demo.slow"}, {"pack": "demo"}, "global"], ids=["action", "pack", "global"]
)
def test_a_policy_shown_as_a_document_reads_back_the_same(scope: Json) -> None:
    adaptive: Json = {"min": 1, "max": 9, "target": {"latency_seconds": 2}}
    policy = policy_from_mapping({**POLICY, "scope": scope, "adaptive": adaptive})
    assert mapping_of(policy)["scope"] == scope
    assert policy_from_mapping(mapping_of(policy)) == policy


def test_an_action_shown_as_a_document_reads_back_the_same() -> None:
    document: dict[str, Json] = {**ACTION, "retry": {"retry_on": [3, "failed"]}, "labels": {"zone": "a"}}
    action = action_from_mapping(document)
    assert mapping_of(action)["retry"] == {
        "max_attempts": 1,
        "delay_seconds": 0.0,
        "backoff": "constant",
        "max_delay_seconds": 300.0,
        "retry_on": [3, "failed"],
    }
    assert action_from_mapping(mapping_of(action)) == action


def test_a_pack_shown_as_a_document_reads_back_the_same() -> None:
    pack = pack_from_mapping({"ref": "demo", "version": "1.0.0", "config_schema": {"type": "object"}})
    assert pack_from_mapping(mapping_of(pack)) == pack


def test_all_mistakes_are_reported_at_once() -> None:
    errors = action_errors(ref="Demo", runner="shel", timout_seconds=5, retry={"retry_on": ["faild", 300]})
    assert set(errors) == {"/ref", "/runner", "/timout_seconds", "/retry/retry_on/0", "/retry/retry_on/1"}
    assert "did you mean 'timeout_seconds'" in errors["/timout_seconds"]
    assert "did you mean 'shell'" in errors["/runner"]


@pytest.mark.parametrize("key", ["entry_point", "command_from"])
def test_a_shell_action_says_once_what_is_run(key: str) -> None:
    errors = action_errors(**{key: "cmd"}, parameters={"properties": {"cmd": {"type": "string", "default": ""}}})
    assert list(errors.values()) == ["runner shell needs exactly one of entry_point, command, command_from"]


def test_a_shell_action_without_anything_to_run_is_refused() -> None:
    assert set(action_errors(command="absent")) == {""}


@pytest.mark.parametrize("runner", ["python", "node", "native", "workflow"])
def test_other_runners_need_an_entry_point(runner: str) -> None:
    assert set(action_errors(runner=runner)) == {"", "/command"}


@pytest.mark.parametrize(
    ("properties", "required"),
    [({}, []), ({"cmd": {"type": "integer"}}, ["cmd"]), ({"cmd": {"type": "string"}}, [])],
    ids=["unknown", "no string", "may be missing"],
)
def test_a_command_comes_from_a_string_that_is_always_there(properties: Json, required: Json) -> None:
    schema: Json = {"properties": properties, "required": required}
    assert set(action_errors(command="absent", command_from="cmd", parameters=schema)) == {"/command_from"}


def test_a_mistake_inside_a_schema_is_named_where_it_stands() -> None:
    assert set(action_errors(parameters={"properties": {"a": {"type": "strng"}}})) == {"/parameters/properties/a/type"}
    assert set(action_errors(output={"$ref": "http://localhost/x"})) == {"/output/$ref"}


@pytest.mark.parametrize(
    "scope", ["everything", 5, {}, {"action": "a.b", "pack": "a"}, {"actoin": "a.b"}, {"pack": "A"}]
)
def test_a_scope_is_one_action_one_pack_or_global(scope: Json) -> None:
    assert all(pointer.startswith("/scope") for pointer in policy_errors(scope=scope))


def test_a_policy_that_limits_nothing_is_refused() -> None:
    assert "limits nothing" in policy_errors(concurrency="absent")[""]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "2", None])
def test_a_limit_is_a_positive_integer(limit: Json) -> None:
    assert set(policy_errors(concurrency={"limit": limit})) == {"/concurrency/limit"}


def test_an_adaptive_limit_needs_bounds_in_order_and_a_limit_to_move() -> None:
    adaptive: Json = {"min": 5, "max": 2, "target": {"failure_rate": 0.1}}
    errors = policy_errors(adaptive=adaptive, concurrency="absent", quota={"per_day": 1})
    assert set(errors) == {"/adaptive", "/adaptive/min"}


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(BadDefinition):
        action_from_mapping(document)
    with pytest.raises(BadDefinition):
        policy_from_mapping(document)


@pytest.mark.parametrize("version", ["1", "1.0", "one", "1.0.0 ", "1.0.0\n"])
def test_a_version_has_three_numbers(version: str) -> None:
    with pytest.raises(BadDefinition):
        pack_from_mapping({"ref": "demo", "version": version})


@pytest.mark.parametrize("shape", [PACK_SHAPE, ACTION_SHAPE, POLICY_SHAPE], ids=["pack", "action", "policy"])
def test_the_published_shapes_are_sound_schemas(shape: Json) -> None:
    assert find_schema_errors(shape) == []
