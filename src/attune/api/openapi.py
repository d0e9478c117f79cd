"""The API's description (OpenAPI 3.1), made from the same declarations that the routes are made from."""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from attune.api.bodies import NoBody, describe_any
from attune.api.endpoint import AnyEndpoint, Public
from attune.api.errors import MEDIA_TYPE, TITLES, Problem

Document = dict[str, Any]
REFERENCE: Final = "#/components/schemas/{name}"
# Every route that needs a token can refuse the request, the asker, or the moment.
USUAL_REFUSALS: Final = (400, 401, 403, 503)


def describe(endpoints: Iterable[AnyEndpoint], *, version: str) -> Document:
    """The whole description."""
    routes = list(endpoints)
    schemas, components = _describe_types(routes)
    paths: Document = {}
    for endpoint in routes:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Attune", "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "att_…"}},
        },
    }


class _Schemas:
    """The schema of each type, found by the type itself: some of them cannot be hashed."""

    def __init__(self, types: list[Any], schemas: tuple[Document, ...]) -> None:
        self._pairs = list(zip(types, schemas, strict=True))

    def of(self, wanted: Any) -> Document:  # noqa: ANN401  any annotation
        return next(schema for known, schema in self._pairs if known == wanted)


def _describe_types(routes: list[AnyEndpoint]) -> tuple[_Schemas, Document]:
    types: list[Any] = [Problem]
    for endpoint in routes:
        types += [each for each in (endpoint.answer, endpoint.body) if each is not None and each not in types]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE, schema_hook=describe_any)
    return _Schemas(types, schemas), dict(components)


def _operation(endpoint: AnyEndpoint, schemas: _Schemas) -> Document:
    operation: Document = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [_tag(endpoint)],
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint.query)],
        "responses": _responses(endpoint, schemas),
        "x-permission": "public" if isinstance(endpoint.permission, Public) else str(endpoint.permission),
        "x-scope": endpoint.scope.value,
    }
    if endpoint.body is not NoBody:
        content = {"application/json": {"schema": schemas.of(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    if isinstance(endpoint.permission, Public):
        operation["security"] = []
    return operation


def _tag(endpoint: AnyEndpoint) -> str:
    if isinstance(endpoint.permission, Public):
        return "platform"
    return endpoint.permission.resource


def _path_parameters(path: str) -> list[Document]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _query_parameters(query: type[msgspec.Struct]) -> list[Document]:
    (_,), components = msgspec.json.schema_components([query], ref_template="{name}")
    schema = components[query.__name__]
    found = []
    for name, part in schema["properties"].items():
        resolved = _inline(part, components)
        found.append({"name": name, "in": "query", "required": name in schema.get("required", []), "schema": resolved})
    return found


def _inline(part: Document, components: Document) -> Document:
    """Query parameters are simple, so what they refer to is written out in their place."""
    if "$ref" in part:
        return _inline(components[part["$ref"]], components)
    if "anyOf" in part:
        return {**part, "anyOf": [_inline(each, components) for each in part["anyOf"]]}
    return part


def _responses(endpoint: AnyEndpoint, schemas: _Schemas) -> Document:
    usual = () if isinstance(endpoint.permission, Public) else USUAL_REFUSALS
    answers = {str(endpoint.status): _answer(endpoint, schemas)}
    for status in sorted({*usual, *endpoint.also}):
        own = status < HTTPStatus.BAD_REQUEST or endpoint.path == "/readyz"
        answers[str(status)] = _answer(endpoint, schemas) if own else _refusal(status, schemas)
    return answers


def _answer(endpoint: AnyEndpoint, schemas: _Schemas) -> Document:
    if endpoint.status == HTTPStatus.NO_CONTENT:
        return {"description": "Done"}
    schema = {"type": "string"} if endpoint.answer is None else schemas.of(endpoint.answer)
    return {"description": "The answer", "content": {endpoint.media_type: {"schema": schema}}}


def _refusal(status: int, schemas: _Schemas) -> Document:
    return {"description": TITLES[status], "content": {MEDIA_TYPE: {"schema": schemas.of(Problem)}}}
