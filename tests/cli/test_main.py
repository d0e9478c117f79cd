"""The command as a whole: quick, helpful, and honest in its exit codes."""

import ast
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from attune.cli.reference import cli_reference
from tests.cli.commands import COMMAND, attune, clean_environment

ROOT = Path(__file__).resolve().parents[2]
# Beside an interpreter that only imports the argument parser, measured in the same run.
COST_RATIO_MAX = 2.5
HEAVY = {"asyncio", "asyncpg", "httpx2", "litestar", "msgspec", "psutil", "rich", "structlog", "yaml"}


def cpu_seconds_of(command: list[str], home: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=clean_environment(home), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def test_the_version_costs_little_more_than_its_argument_parser(home: Path) -> None:
    # The best of several: a busy machine makes one of them slow, never all of them quick.
    ours = min(cpu_seconds_of([*COMMAND, "--version"], home) for _ in range(5))
    parser = min(cpu_seconds_of([sys.executable, "-P", "-c", "import click"], home) for _ in range(5))
    assert ours < parser * COST_RATIO_MAX


def test_nothing_heavy_is_imported_for_the_version(home: Path) -> None:
    code = "import sys; from attune.cli.main import run_command; run_command(['--version']); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=clean_environment(home), check=True, capture_output=True, text=True
    )
    assert HEAVY.isdisjoint(ast.literal_eval(done.stdout.splitlines()[-1]))


def test_the_version_is_data_for_machines_too(home: Path) -> None:
    spoken = attune("--version", home=home).stdout.split()
    assert json.loads(attune("version", "-o", "json", home=home).stdout) == {"version": spoken[1]}


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion(home: Path) -> None:
    done = attune("exeuction", home=home)
    assert done.returncode == 2
    assert "Did you mean execution?" in done.stderr
    assert not done.stdout


def test_every_command_explains_itself(home: Path) -> None:
    done = attune("--help", home=home)
    assert done.returncode == 0
    for command in ("up", "down", "status", "run", "execution", "pack", "worker", "token", "check", "topology"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed_for_every_shell(home: Path, shell: str) -> None:
    done = attune("completion", shell, home=home)
    assert done.returncode == 0
    assert "_ATTUNE_COMPLETE" in done.stdout


def test_completion_knows_the_commands(home: Path) -> None:
    asked = {"_ATTUNE_COMPLETE": "bash_complete", "COMP_WORDS": "attune exec", "COMP_CWORD": "1"}
    assert "plain,execution" in attune(home=home, more=asked).stdout


def test_an_unknown_setting_is_one_clear_line(home: Path) -> None:
    done = attune("config", "show", home=home, more={"ATTUNE__API__PROT": "1"})
    assert done.returncode == 5
    assert done.stderr == "attune: ATTUNE__API__PROT: api.prot: unknown setting; did you mean ATTUNE__API__PORT?\n"


def test_settings_are_shown_with_their_origin_and_without_their_secrets(home: Path) -> None:
    url = "postgresql://me:hush@db/attune"
    done = attune("config", "show", "--origin", "-o", "json", home=home, more={"ATTUNE__DATABASE__URL": url})
    (line,) = [each for each in json.loads(done.stdout)["items"] if each["key"] == "database.url"]
    assert line["origin"] == "ATTUNE__DATABASE__URL"
    assert "hush" not in done.stdout


def test_without_a_platform_commands_say_how_to_start_one(home: Path) -> None:
    done = attune("execution", "list", home=home)
    assert done.returncode == 7
    assert "up" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_crash(home: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*COMMAND, "config", "show"],
            env=clean_environment(home),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert b"Traceback" not in done.stderr


def test_the_reference_page_is_current() -> None:
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert written == cli_reference(), "run: python -m attune.cli.reference > docs/reference/cli.md"
