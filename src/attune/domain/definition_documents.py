"""Documents become definitions: one way for YAML files and for JSON bodies, with every error named by its pointer."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from attune.domain.definition_shapes import ACTION_SHAPE, PACK_SHAPE, POLICY_SHAPE
from attune.domain.definitions import ActionDefinition, PackDefinition, PolicyDefinition, Runner, ScopeKind
from attune.domain.errors import FieldError, Invalid
from attune.domain.http.request import find_request_errors
from attune.domain.json_schema import find_document_errors, find_schema_errors
from attune.domain.json_values import Json, find_unstorable
from attune.domain.parameters import find_parameter_schema_errors
from attune.domain.refs import BadRef, did_you_mean, parse_pack_ref, parse_ref

Definition = TypeVar("Definition", ActionDefinition, PackDefinition, PolicyDefinition)

# Runners whose entry point is the only way to say what is run.
_NEEDS_ENTRY_POINT = frozenset({Runner.PYTHON, Runner.NODE, Runner.NATIVE, Runner.WORKFLOW})
_COMMAND_KEYS = ("entry_point", "command", "command_from")
# Keys that mean something to one runner alone.
_RUNNER_KEYS = {"image": Runner.CONTAINER, "container": Runner.CONTAINER, "http": Runner.HTTP}
_LIMIT_KEYS = ("concurrency", "rate_limit", "quota")


class BadDefinition(Invalid):
    """A document that does not describe a pack, an action or a policy."""

    code = "bad_definition"


def action_from_mapping(document: object) -> ActionDefinition:
    """The action a document describes, or every reason why it describes none."""
    errors = find_action_errors(document)
    return _build(document, ActionDefinition, "action", errors)


def policy_from_mapping(document: object) -> PolicyDefinition:
    """The policy a document describes, or every reason why it describes none."""
    errors = find_policy_errors(document)
    return _build(_with_scope_spelled_out(document), PolicyDefinition, "policy", errors)


def pack_from_mapping(document: object) -> PackDefinition:
    """The pack a document describes, without its actions and policies, or every reason why it describes none."""
    errors = find_pack_errors(document)
    return _build(document, PackDefinition, "pack", errors)


def mapping_of(definition: ActionDefinition | PolicyDefinition | PackDefinition) -> dict[str, Json]:
    """The document that describes a definition: what the API shows and what `…_from_mapping` reads back."""
    document: dict[str, Json] = msgspec.json.decode(msgspec.json.encode(definition))
    if isinstance(definition, ActionDefinition):
        reasons: list[Json] = [code if isinstance(code, int) else code.value for code in definition.retry.retry_on]
        document["container"] = _without_nulls(document["container"])
        document["retry"] = {**msgspec.to_builtins(definition.retry), "retry_on": sorted(reasons, key=str)}
    if isinstance(definition, PolicyDefinition):
        scope = definition.scope
        document["scope"] = scope.kind.value if scope.ref is None else {scope.kind.value: scope.ref}
        document["adaptive"] = _without_nulls(document["adaptive"])
    if isinstance(definition, PackDefinition):
        del document["actions"], document["policies"]
    return {key: value for key, value in document.items() if value is not None}


def find_pack_errors(document: object) -> list[FieldError]:
    """Everything wrong with a pack's document."""
    return _find_errors(document, PACK_SHAPE, _check_pack)


def find_action_errors(document: object) -> list[FieldError]:
    """Everything wrong with an action's document."""
    return _find_errors(document, ACTION_SHAPE, _check_action)


def find_policy_errors(document: object) -> list[FieldError]:
    """Everything wrong with a policy's document."""
    return _find_errors(document, POLICY_SHAPE, _check_policy)


_Check = Callable[[Mapping[str, Json]], Iterator[FieldError]]


def _find_errors(document: object, shape: Mapping[str, Json], check: _Check) -> list[FieldError]:
    if unstorable := find_unstorable(document):
        return unstorable
    errors = find_document_errors(shape, document)
    if not isinstance(document, dict):
        return errors
    broken = {error.pointer for error in errors}
    # A part whose shape is wrong already has its error; what follows from it would only confuse.
    return errors + [error for error in check(document) if error.pointer not in broken]


def _build(document: object, kind: type[Definition], noun: str, errors: list[FieldError]) -> Definition:
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise BadDefinition(f"this is no {noun}: {first.pointer.lstrip('/')} {first.message}{more}", fields=errors)
    return msgspec.convert(document, kind)


def _check_pack(document: Mapping[str, Json]) -> Iterator[FieldError]:
    yield from _check_ref(document.get("ref"), "/ref", parse_pack_ref)
    yield from _below("/config_schema", find_parameter_schema_errors, document.get("config_schema"))


def _check_action(document: Mapping[str, Json]) -> Iterator[FieldError]:
    yield from _check_ref(document.get("ref"), "/ref", parse_ref)
    yield from _below("/parameters", find_parameter_schema_errors, document.get("parameters"))
    yield from _below("/output", find_schema_errors, document.get("output"))
    if document.get("runner") in set(Runner):
        runner = Runner(str(document["runner"]))
        yield from _check_command_keys(document, runner)
        yield from _check_runner_keys(document, runner)
    yield from _check_command_from(document)


def _check_runner_keys(document: Mapping[str, Json], runner: Runner) -> Iterator[FieldError]:
    for key, owner in _RUNNER_KEYS.items():
        if key in document and runner is not owner:
            yield FieldError(pointer=f"/{key}", message=f"is only for runner {owner}")
    for key in ("image", "http"):
        if runner is _RUNNER_KEYS[key] and key not in document:
            yield FieldError(pointer="", message=f"the key {key!r} is missing: runner {runner} needs it")
    template = document.get("http")
    if isinstance(template, dict):
        for error in find_request_errors(template, document.get("parameters")):
            yield FieldError(pointer=f"/http{error.pointer}", message=error.message)


def _check_command_keys(document: Mapping[str, Json], runner: Runner) -> Iterator[FieldError]:
    given = [key for key in _COMMAND_KEYS if key in document]
    if runner is Runner.HTTP:
        for key in given:
            yield FieldError(pointer=f"/{key}", message="means nothing to runner http; the request stands under http")
        return
    if runner is Runner.CONTAINER:
        if len(given) > 1:
            message = f"runner container needs at most one of {', '.join(_COMMAND_KEYS)}"
            yield FieldError(pointer=f"/{given[1]}", message=message)
        return
    if runner is Runner.SHELL:
        if len(given) != 1:
            message = f"runner shell needs exactly one of {', '.join(_COMMAND_KEYS)}"
            yield FieldError(pointer=f"/{given[1]}" if given else "", message=message)
        return
    if runner in _NEEDS_ENTRY_POINT and "entry_point" not in given:
        yield FieldError(pointer="", message=f"the key 'entry_point' is missing: runner {runner} needs it")
    for key in given:
        if key != "entry_point":
            yield FieldError(pointer=f"/{key}", message="is only for runners shell and container; use entry_point")


def _check_command_from(document: Mapping[str, Json]) -> Iterator[FieldError]:
    name, schema = document.get("command_from"), document.get("parameters")
    if not isinstance(name, str):
        return
    properties = schema.get("properties") if isinstance(schema, dict) else None
    known = properties if isinstance(properties, dict) else {}
    part = known.get(name)
    if name not in known:
        yield FieldError(pointer="/command_from", message=f"names no parameter{did_you_mean(name, known)}")
    elif not isinstance(part, dict) or part.get("type") != "string":
        yield FieldError(pointer="/command_from", message=f"names a parameter whose type is not string: {name!r}")
    elif "default" not in part and name not in _required(schema):
        message = f"names a parameter that may be missing: list {name!r} under required"
        yield FieldError(pointer="/command_from", message=message)


def _required(schema: Json) -> list[Json]:
    required = schema.get("required") if isinstance(schema, dict) else None
    return required if isinstance(required, list) else []


def _check_policy(document: Mapping[str, Json]) -> Iterator[FieldError]:
    yield from _check_ref(document.get("ref"), "/ref", parse_ref)
    scope = document.get("scope")
    if isinstance(scope, dict):
        yield from _check_ref(scope.get(ScopeKind.ACTION), "/scope/action", parse_ref)
        yield from _check_ref(scope.get(ScopeKind.PACK), "/scope/pack", parse_pack_ref)
    elif "scope" in document and scope != ScopeKind.GLOBAL:
        yield FieldError(pointer="/scope", message="must be {action: REF}, {pack: REF} or global")
    if not any(key in document for key in _LIMIT_KEYS):
        yield FieldError(pointer="", message=f"limits nothing: it needs at least one of {', '.join(_LIMIT_KEYS)}")
    adaptive = document.get("adaptive")
    if isinstance(adaptive, dict):
        yield from _check_adaptive(document, adaptive)


def _check_adaptive(document: Mapping[str, Json], adaptive: Mapping[str, Json]) -> Iterator[FieldError]:
    if "concurrency" not in document:
        yield FieldError(pointer="/adaptive", message="moves a concurrency limit, and there is none")
    lowest, highest = adaptive.get("min"), adaptive.get("max")
    if isinstance(lowest, int) and isinstance(highest, int) and lowest > highest:
        yield FieldError(pointer="/adaptive/min", message="is greater than max")


def _check_ref(ref: Json, pointer: str, parse: Callable[[str], str]) -> Iterator[FieldError]:
    if isinstance(ref, str):
        try:
            parse(ref)
        except BadRef as error:
            yield FieldError(pointer=pointer, message=error.message)


def _below(pointer: str, find: Callable[[object], list[FieldError]], schema: Json) -> Iterator[FieldError]:
    if isinstance(schema, dict):
        for error in find(schema):
            yield FieldError(pointer=pointer + error.pointer, message=error.message)


def _with_scope_spelled_out(document: object) -> object:
    if not isinstance(document, dict):
        return document
    scope = document.get("scope")
    kind, ref = next(iter(scope.items()), (None, None)) if isinstance(scope, dict) else (scope, None)
    return {**document, "scope": {"kind": kind, "ref": ref}}


def _without_nulls(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(part) for key, part in value.items() if part is not None}
