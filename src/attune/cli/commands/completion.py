"""`attune completion`: what makes a shell complete our commands."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: `eval "$(attune completion bash)"`."""
    from click.shell_completion import get_completion_class

    from attune.cli.main import attune

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    # bash's own asks the installed bash for its version; the script itself is the same for every version.
    script = kind(attune, {}, "attune", "_ATTUNE_COMPLETE")
    click.echo(script.source_template % script.source_vars())
