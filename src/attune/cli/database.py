"""`attune db`: the address of the database, a prompt on it, and its schema."""

import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from attune.cli.exits import CommandFailed, database_errors
from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show_document

if TYPE_CHECKING:
    from pathlib import Path

database = group("db", "Look into the database, or bring it to this version.")


@database.command("url")
def show_url() -> None:
    """Print the libpq URL of the database, password included."""
    click.echo(_url())


@database.command()
@click.option("-c", "--command", "sql", help="Run this SQL and leave.")
@click.argument("arguments", nargs=-1, metavar="[-- PSQL_ARGUMENT...]")
def psql(sql: str | None, arguments: tuple[str, ...]) -> None:
    """Open psql on the database, or run one command in it."""
    from attune.cli.session import load

    loaded, _ = load()
    program = _find_psql(loaded.settings.database.bin_dir)
    url, environment = split_password(_url())
    words = [program, "--no-psqlrc", f"--dbname={url}", *(["--command", sql] if sql is not None else []), *arguments]
    os.execve(program, words, {**os.environ, **environment})  # noqa: S606  no shell is wanted


@database.command()
@output_option()
def migrate(output: Format) -> None:
    """Apply the migrations that are missing."""
    import asyncio

    from attune.storage.migrate import migrate as apply

    url = _url()
    with database_errors(url, embedded=_is_embedded()):
        applied = asyncio.run(apply(url))
    rows = [{"version": each.version, "name": each.name} for each in applied]
    if not rows and output in {Format.TABLE, Format.WIDE}:
        click.echo("the database is up to date", err=True)
        return
    view = View(columns=[column("version"), column("name")], name="name")
    show_document({"applied": rows}, view, rows, output)


def split_password(url: str) -> tuple[str, Mapping[str, str]]:
    """The URL without its password, which goes through the environment: arguments are visible to everyone."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    environment = {"PGOPTIONS": f"{os.environ.get('PGOPTIONS', '')} -c search_path=attune".strip()}
    if password:
        environment["PGPASSWORD"] = unquote(password)
    return parts._replace(netloc=f"{name}{at}{host}").geturl(), environment


def _url() -> str:
    from attune.cli.session import load
    from attune.runtime.home import database_url

    loaded, home = load()
    return database_url(loaded.settings, home)


def _is_embedded() -> bool:
    from attune.cli.session import load

    return load()[0].settings.database.url is None


def _find_psql(bin_dir: "Path | None") -> str:
    from attune.runtime.postgres_server import ServerError
    from attune.runtime.postgres_server.binaries import find_binaries

    try:
        return str(find_binaries(bin_dir).program("psql"))
    except ServerError as error:
        found = shutil.which("psql")
        if found is None:
            raise CommandFailed(f"no psql found: {error}") from error
        return found
