"""`attune worker`: the processes that run actions."""

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show

worker = group("worker", "Look at workers.")

VIEW = View(
    columns=[
        column("id"),
        column("name"),
        column("status"),
        column("capacity"),
        column("load"),
        column("isolation"),
        column("last_heartbeat", wide=True),
        column("host", wide=True),
        column("pid", wide=True),
        column("runtimes", wide=True),
    ],
    name="name",
)


@worker.command("list")
@output_option()
def list_workers(output: Format) -> None:
    """List workers."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.list_workers()).body, VIEW, output)
