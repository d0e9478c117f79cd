"""`attune alert`: what is worth a person's attention, now and before."""

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, print_fields, show, talk

alert = group("alert", "Look at what is worth a person's attention, now and before.")

VIEW = View(
    columns=[
        column("id"),
        column("state"),
        column("severity"),
        column("name"),
        column("message"),
        column("fired_at"),
        column("resolved_at"),
        column("subject", wide=True),
        column("since", wide=True),
        column("seen_at", wide=True),
        column("runbook", wide=True),
        column("facts", wide=True),
    ],
    name="name",
)


@alert.command("list")
@click.option(
    "--state",
    type=click.Choice(["firing", "resolved", "pending"]),
    help="Only those of this state. Default: firing and resolved.",
)
@click.option("--name", help="Only this alert.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--cursor", help="Where the page before ended.")
@output_option()
def list_alerts(*, output: Format, **wanted: str | int | None) -> None:
    """List alerts, the newest first."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.list_alerts(**wanted))
    show(answer.body, VIEW, output)
    if answer.value.next_cursor is not None and output in {Format.TABLE, Format.WIDE}:
        talk(f"there are more: --cursor {answer.value.next_cursor}")


@alert.command("show")
@click.argument("alert_id", type=int, metavar="ID")
@output_option()
def show_alert(alert_id: int, output: Format) -> None:
    """Show one alert, with its facts and the page that helps."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        body = attune.send(calls.get_alert(alert_id)).body
    if output in {Format.TABLE, Format.WIDE}:
        import msgspec

        print_fields(msgspec.json.decode(body, type=dict[str, object]).items())
    else:
        show(body, VIEW, output)
