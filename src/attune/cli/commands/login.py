"""`attune login`: exchange a password for the token of this home."""

import click

from attune.cli.exits import CommandFailed, Exit
from attune.cli.render import talk


@click.command()
@click.option("--login", "name", default="admin", show_default=True)
@click.option("--password", envvar="ATTUNE_PASSWORD", prompt=True, hide_input=True, help="Asked for if not given.")
def login(name: str, password: str) -> None:
    """Log this home's command line in again."""
    from attune.cli.session import api_url, find_home
    from attune.client import AttuneClient, calls
    from attune.runtime.home import keep_secret

    url = api_url()
    with AttuneClient(url) as anonymous:
        answer = anonymous.send(calls.log_in(name, password)).value
    token = answer.access_token or answer.token or answer.secret
    if token is None:
        raise CommandFailed(f"{url} accepted the password but gave no token", exit_code=Exit.AUTH)
    home = find_home()
    home.secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    keep_secret(home.cli_token, token)
    talk(f"logged in to {url} as {name}")
