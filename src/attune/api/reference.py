"""The page of the reference that lists every route, made from their declarations."""

from attune.api.app import all_endpoints
from attune.api.endpoint import Public
from attune.api.routes import endings, executions

HEAD = """# Routes

<!-- Made by `python -m attune.api`; a test compares it with the code. -->

Every route needs `Authorization: Bearer att_…` unless its permission is *public*. Lists answer
`{"items": […], "next_cursor": null}` and take `limit`, `cursor` and `sort`. Errors are RFC 9457 problems with a stable
`code`. The full description, with every field, is at `/openapi.json`, and `/docs` shows it.

| method | path | permission | scope | what it does |
|---|---|---|---|---|
"""


def render_routes() -> str:
    """The page."""
    rows = [
        f"| {endpoint.method} | `{endpoint.path}` | {_permission(endpoint.permission)} | {endpoint.scope} "
        f"| {endpoint.summary} |"
        for endpoint in all_endpoints(version="")
    ]
    further_permissions = (*endings.FURTHER_PERMISSIONS, *executions.FURTHER_PERMISSIONS)
    further = ", ".join(f"`{permission}`" for permission in further_permissions)
    return HEAD + "\n".join(rows) + f"\n\nAsked for beside `executions:create`, where a request uses them: {further}.\n"


def _permission(permission: object) -> str:
    return "*public*" if isinstance(permission, Public) else f"`{permission}`"
