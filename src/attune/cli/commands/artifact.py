"""`attune artifact`: results that are too large for their execution."""

import sys
from pathlib import Path
from typing import BinaryIO

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show, talk

artifact = group("artifact", "Look at large results, or fetch one.")

VIEW = View(
    columns=[
        column("id"),
        column("execution", "execution_id"),
        column("attempt"),
        column("name"),
        column("bytes"),
        column("created"),
        column("media_type", wide=True),
        column("sha256", wide=True),
    ],
    name="id",
)


@artifact.command("list")
@click.option("--execution", "execution_id", type=int, help="Only those of this execution.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--cursor", help="Where the page before ended.")
@output_option()
def list_artifacts(execution_id: int | None, limit: int | None, cursor: str | None, output: Format) -> None:
    """List artifacts."""
    from attune.cli.session import connect
    from attune.client import calls

    call = calls.list_artifacts(execution_id=execution_id, limit=limit, cursor=cursor)
    with connect() as attune:
        answer = attune.send(call)
    show(answer.body, VIEW, output)
    if answer.value.next_cursor is not None and output in {Format.TABLE, Format.WIDE}:
        talk(f"there are more: --cursor {answer.value.next_cursor}")


@artifact.command("get")
@click.argument("artifact_id", type=int, metavar="ID")
@click.option(
    "--file", type=click.Path(dir_okay=False, path_type=Path), help="Write it there instead of on standard output."
)
def get_artifact(artifact_id: int, file: Path | None) -> None:
    """Fetch the content of one artifact, and check that it is whole."""
    import hashlib
    from contextlib import ExitStack

    from attune.cli.session import connect
    from attune.client import NoAnswer, calls

    with connect() as attune, ExitStack() as stack:
        told = attune.send(calls.get_artifact(artifact_id)).value
        target: BinaryIO = sys.stdout.buffer
        if file is not None:
            target = stack.enter_context(file.open("wb"))
        digest = hashlib.sha256()
        for piece in attune.read(calls.get_artifact_content(artifact_id)):
            digest.update(piece)
            target.write(piece)
        target.flush()
    if digest.hexdigest() != told.sha256:
        raise NoAnswer(f"artifact {artifact_id} did not arrive whole; fetch it again")
