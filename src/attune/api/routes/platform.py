"""The API about itself: is it alive, is it ready, its numbers, its description and the page that shows it."""

import asyncio
from collections.abc import Callable
from importlib.resources import files
from typing import Final

import msgspec

from attune.api.bodies import NoBody
from attune.api.endpoint import PUBLIC, AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.readiness import ReadyState
from attune.domain.errors import NotFound
from attune.domain.permission import Scope, parse_permission
from attune.runtime.metrics import CONTENT_TYPE

# The page runs our own files only; the viewer sets styles on elements, which needs the one exception.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS: Final = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "no-referrer"}
OWN_FILES: Final = {"page.js": "text/javascript", "page.css": "text/css"}
VIEWER_FILES: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}


class Alive(msgspec.Struct, kw_only=True, frozen=True):
    """The process answers."""

    status: str = "ok"


async def is_alive(_call: Call[NoQuery, NoBody]) -> Reply:
    return Reply(value=Alive())


async def is_ready(call: Call[NoQuery, NoBody]) -> Reply:
    state = await call.services.readiness.state()
    return Reply(value=state, status=200 if state.ready else 503, headers={} if state.ready else {"Retry-After": "1"})


async def show_metrics(call: Call[NoQuery, NoBody]) -> Reply:
    return Reply(content=await call.services.scrape.render(), media_type=CONTENT_TYPE)


async def show_page(_call: Call[NoQuery, NoBody]) -> Reply:
    content = await asyncio.to_thread(_read_own, "index.html")
    return Reply(content=content, media_type="text/html; charset=utf-8", headers=PAGE_HEADERS)


async def show_page_file(call: Call[NoQuery, NoBody]) -> Reply:
    name = call.path_text("name")
    if name in OWN_FILES:
        content, media_type = await asyncio.to_thread(_read_own, name), OWN_FILES[name]
    elif name in VIEWER_FILES:
        content, media_type = await asyncio.to_thread(_read_viewer, name), VIEWER_FILES[name]
    else:
        raise NotFound("the page has no such file")
    return Reply(content=content, media_type=media_type, headers=PAGE_HEADERS)


def _read_own(name: str) -> bytes:
    return files("attune.api").joinpath("docs_page", name).read_bytes()


def _read_viewer(name: str) -> bytes:
    # The folder carries the viewer's version in its name.
    (folder,) = files("swagger_ui_bundle").joinpath("vendor").iterdir()
    return folder.joinpath(name).read_bytes()


def description_endpoint(describe: Callable[[], bytes]) -> AnyEndpoint:
    """The route of the description, which is made on first demand, because it describes this route too."""

    async def show_description(_call: Call[NoQuery, NoBody]) -> Reply:
        return Reply(content=describe())

    return Endpoint(
        method=Method.GET,
        path="/openapi.json",
        name="show_description",
        summary="This description, as OpenAPI 3.1.",
        permission=parse_permission("description:read"),
        scope=Scope.INSTALLATION,
        answer=dict[str, object],
        respond=show_description,
    )


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/healthz",
        name="is_alive",
        summary="The process answers; nothing else is looked at.",
        permission=PUBLIC,
        scope=Scope.INSTALLATION,
        answer=Alive,
        respond=is_alive,
    ),
    Endpoint(
        method=Method.GET,
        path="/readyz",
        name="is_ready",
        summary="Every part works; if not, which does not and what to do.",
        permission=PUBLIC,
        scope=Scope.INSTALLATION,
        answer=ReadyState,
        also=(503,),
        respond=is_ready,
    ),
    Endpoint(
        method=Method.GET,
        path="/metrics",
        name="show_metrics",
        summary="Numbers in Prometheus' format.",
        permission=parse_permission("metrics:read"),
        scope=Scope.INSTALLATION,
        answer=None,
        media_type="text/plain",
        respond=show_metrics,
    ),
    Endpoint(
        method=Method.GET,
        path="/docs",
        name="show_page",
        summary="A page that shows this description; it holds no data and asks for a token.",
        permission=PUBLIC,
        scope=Scope.INSTALLATION,
        answer=None,
        media_type="text/html",
        respond=show_page,
    ),
    Endpoint(
        method=Method.GET,
        path="/docs/{name}",
        name="show_page_file",
        summary="A file of that page.",
        permission=PUBLIC,
        scope=Scope.INSTALLATION,
        answer=None,
        media_type="application/octet-stream",
        also=(404,),
        respond=show_page_file,
    ),
)
