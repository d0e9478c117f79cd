"""Packs, actions and policies: what there is to run, and within which limits."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.pages import Page, PageQuery, make_page, read_cursor
from attune.api.schemas.definitions import ActionQuery, InstallRequest, PackAnswer
from attune.domain.definition_documents import action_from_mapping, pack_from_mapping, policy_from_mapping
from attune.domain.errors import FieldError, Invalid, NotFound
from attune.domain.json_values import Json
from attune.domain.permission import Scope, parse_permission
from attune.domain.refs import did_you_mean
from attune.operations.definitions.change_policy import change_policy
from attune.operations.definitions.create_action import create_action
from attune.operations.definitions.create_pack import create_pack
from attune.operations.definitions.create_policy import create_policy
from attune.operations.install_pack import Installed, install_pack
from attune.operations.workers.quarantine_actions import release_action
from attune.packs.read import PackReading, read_pack
from attune.packs.store import stage
from attune.storage import actions as action_rows
from attune.storage.definitions import packs, policies
from attune.storage.definitions.packs import PackRow
from attune.storage.definitions.policies import PolicyRow
from attune.storage.tx import Tx
from attune.storage.views import actions
from attune.storage.views.actions import ActionView

Document = dict[str, Json]


async def list_packs(call: Call[PageQuery, NoBody]) -> Reply:
    (after,) = read_cursor(call.query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        rows = await packs.list_page(tx, after=after, limit=call.query.limit + 1)
    page = make_page(rows, limit=call.query.limit, place_of=lambda row: [row.id])
    return Reply(value=Page(items=[_pack_answer(row) for row in page.items], next_cursor=page.next_cursor))


async def get_pack(call: Call[NoQuery, NoBody]) -> Reply:
    async with call.services.parts.database.reading() as tx:
        return Reply(value=_pack_answer(await _get_pack(tx, call.path_text("ref"))))


async def _get_pack(tx: Tx, ref: str) -> PackRow:
    row = await packs.find(tx, ref)
    if row is None:
        raise NotFound(f"pack {ref!r} does not exist{did_you_mean(ref, await packs.list_refs(tx))}")
    return row


def _pack_answer(row: PackRow, installed: Installed | None = None, warnings: tuple[str, ...] = ()) -> PackAnswer:
    return PackAnswer(
        id=row.id,
        ref=row.ref,
        version=row.version,
        label=row.label,
        description=row.description,
        config_schema=row.config_schema,
        source=row.source,
        digest=row.digest,
        enabled=row.enabled,
        created=row.created,
        updated=row.updated,
        changed=installed.changed if installed else None,
        removed=list(installed.removed) if installed else [],
        warnings=list(warnings),
    )


async def add_pack(call: Call[NoQuery, Document]) -> Reply:
    pack = pack_from_mapping(call.body)
    async with call.services.parts.database.transaction() as tx:
        await create_pack(tx, pack, by=call.actor)
        return Reply(value=_pack_answer(await _get_pack(tx, pack.ref)), status=201)


async def install(call: Call[NoQuery, InstallRequest]) -> Reply:
    folder = Path(call.body.path)
    if not folder.is_absolute():
        message = "must be an absolute path on the API's machine"
        raise Invalid(f"path {message}", code="bad_path", fields=[FieldError(pointer="/path", message=message)])
    # Copying and reading may take long; neither belongs on the loop or in a transaction.
    reading = await asyncio.to_thread(_stage_and_read, folder, call.services.parts.pack_store)
    async with call.services.parts.database.transaction() as tx:
        installed = await install_pack(tx, reading.definition, digest=reading.digest, source=str(folder), by=call.actor)
        row = await _get_pack(tx, reading.definition.ref)
    return Reply(value=_pack_answer(row, installed, reading.warnings))


def _stage_and_read(folder: Path, store: Path) -> PackReading:
    return read_pack(stage(folder, store))


async def list_actions(call: Call[ActionQuery, NoBody]) -> Reply:
    (after,) = read_cursor(call.query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        rows = await actions.list_page(tx, pack=call.query.pack, after=after, limit=call.query.limit + 1)
    return Reply(value=make_page(rows, limit=call.query.limit, place_of=lambda row: [row.id]))


async def get_action(call: Call[NoQuery, NoBody]) -> Reply:
    async with call.services.parts.database.reading() as tx:
        return Reply(value=await _get_action(tx, call.path_text("ref")))


async def _get_action(tx: Tx, ref: str) -> ActionView:
    row = await actions.find(tx, ref)
    if row is None:
        raise NotFound(f"action {ref!r} does not exist{did_you_mean(ref, await action_rows.list_refs(tx))}")
    return row


async def add_action(call: Call[NoQuery, Document]) -> Reply:
    action = action_from_mapping(call.body)
    async with call.services.parts.database.transaction() as tx:
        await create_action(tx, action, by=call.actor)
        return Reply(value=await _get_action(tx, action.ref), status=201)


async def release(call: Call[NoQuery, NoBody]) -> Reply:
    ref = call.path_text("ref")
    async with call.services.parts.database.transaction() as tx:
        await release_action(tx, ref, by=call.actor)
        return Reply(value=await _get_action(tx, ref))


async def list_policies(call: Call[PageQuery, NoBody]) -> Reply:
    (after,) = read_cursor(call.query.cursor, (0,))
    async with call.services.parts.database.reading() as tx:
        rows = await policies.list_page(tx, after=after, limit=call.query.limit + 1)
    page = make_page(rows, limit=call.query.limit, place_of=lambda row: [row.id])
    return Reply(value=Page(items=[_policy_answer(row) for row in page.items], next_cursor=page.next_cursor))


async def get_policy(call: Call[NoQuery, NoBody]) -> Reply:
    async with call.services.parts.database.reading() as tx:
        return Reply(value=await _get_policy(tx, call.path_text("ref")))


async def _get_policy(tx: Tx, ref: str) -> Mapping[str, Json]:
    row = await policies.find(tx, ref)
    if row is None:
        raise NotFound(f"policy {ref!r} does not exist{did_you_mean(ref, await policies.list_refs(tx))}")
    return _policy_answer(row)


def _policy_answer(row: PolicyRow) -> Mapping[str, Json]:
    added = {
        "id": row.id,
        "adhoc": row.adhoc,
        "revision": row.revision,
        "created": row.created,
        "updated": row.updated,
    }
    return {**row.document, **msgspec.to_builtins(added)}


async def add_policy(call: Call[NoQuery, Document]) -> Reply:
    policy = policy_from_mapping(call.body)
    async with call.services.parts.database.transaction() as tx:
        await create_policy(tx, policy, by=call.actor)
        return Reply(value=await _get_policy(tx, policy.ref), status=201)


async def patch_policy(call: Call[NoQuery, Document]) -> Reply:
    ref = call.path_text("ref")
    async with call.services.parts.database.transaction() as tx:
        await change_policy(tx, ref, call.body, by=call.actor)
        return Reply(value=await _get_policy(tx, ref))


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/packs",
        name="list_packs",
        summary="Installed packs.",
        permission=parse_permission("packs:read"),
        scope=Scope.INSTALLATION,
        query=PageQuery,
        answer=Page[PackAnswer],
        respond=list_packs,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/packs",
        name="create_pack",
        summary="Make a pack without a folder, to hold actions and policies created one by one.",
        permission=parse_permission("packs:create"),
        scope=Scope.INSTALLATION,
        body=Document,
        answer=PackAnswer,
        status=201,
        also=(409, 422),
        respond=add_pack,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/packs/{ref}",
        name="get_pack",
        summary="One pack.",
        permission=parse_permission("packs:read"),
        scope=Scope.INSTALLATION,
        answer=PackAnswer,
        also=(404,),
        respond=get_pack,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/packs:install",
        name="install_pack",
        summary="Install or upgrade a pack from a folder on the API's machine.",
        permission=parse_permission("packs:install"),
        scope=Scope.INSTALLATION,
        body=InstallRequest,
        answer=PackAnswer,
        also=(422,),
        respond=install,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/actions",
        name="list_actions",
        summary="What can be run.",
        permission=parse_permission("actions:read"),
        scope=Scope.INSTALLATION,
        query=ActionQuery,
        answer=Page[ActionView],
        respond=list_actions,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/actions",
        name="create_action",
        summary="Add an action to a pack.",
        permission=parse_permission("actions:create"),
        scope=Scope.INSTALLATION,
        body=Document,
        answer=ActionView,
        status=201,
        also=(409, 422),
        respond=add_action,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/actions/{ref}",
        name="get_action",
        summary="One action, with the schema of its parameters.",
        permission=parse_permission("actions:read"),
        scope=Scope.INSTALLATION,
        answer=ActionView,
        also=(404,),
        respond=get_action,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/actions/{ref}/release",
        name="release_action",
        summary="Let a quarantined action be placed again.",
        permission=parse_permission("actions:release"),
        scope=Scope.INSTALLATION,
        answer=ActionView,
        also=(404,),
        respond=release,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/policies",
        name="list_policies",
        summary="Limits on what runs when.",
        permission=parse_permission("policies:read"),
        scope=Scope.INSTALLATION,
        query=PageQuery,
        answer=Page[Document],
        respond=list_policies,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/policies",
        name="create_policy",
        summary="Add a policy to a pack.",
        permission=parse_permission("policies:create"),
        scope=Scope.INSTALLATION,
        body=Document,
        answer=Document,
        status=201,
        also=(409, 422),
        respond=add_policy,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/policies/{ref}",
        name="get_policy",
        summary="One policy.",
        permission=parse_permission("policies:read"),
        scope=Scope.INSTALLATION,
        answer=Document,
        also=(404,),
        respond=get_policy,
    ),
    Endpoint(
        method=Method.PATCH,
        path="/api/v1/policies/{ref}",
        name="change_policy",
        summary="Merge a patch into a policy; null removes a part.",
        permission=parse_permission("policies:change"),
        scope=Scope.INSTALLATION,
        body=Document,
        answer=Document,
        also=(404, 422),
        respond=patch_policy,
    ),
)
