"""Where packages come from on this machine is told to uv as it was told to pip."""

from __future__ import annotations

from pathlib import Path

from attune.worker.environments.build import last_lines
from attune.worker.environments.sources import kept_environment, uv_environment

INDEX = "https://user:hunter2@packages.example/simple"


def told(tmp_path: Path, **variables: str) -> dict[str, str]:
    # Nothing of this machine's own files.
    return uv_environment({"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", **variables}, cache=tmp_path / "uv")


def test_pips_variables_become_uvs(tmp_path: Path) -> None:
    seen = told(tmp_path, PIP_INDEX_URL=INDEX, PIP_FIND_LINKS="/a /b", PIP_CERT="/ca.pem", PIP_NO_INDEX="true")
    assert seen["UV_DEFAULT_INDEX"] == INDEX
    assert (seen["UV_FIND_LINKS"], seen["SSL_CERT_FILE"], seen["UV_NO_INDEX"]) == ("/a,/b", "/ca.pem", "1")


def test_pips_files_are_read_and_its_variables_win(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://file.example\nextra-index-url =\n    a\n    b\n")
    chosen = str(tmp_path / "pip.conf")
    assert told(tmp_path, PIP_CONFIG_FILE=chosen)["UV_DEFAULT_INDEX"] == "https://file.example"
    assert told(tmp_path, PIP_CONFIG_FILE=chosen)["UV_INDEX"] == "a b"
    assert told(tmp_path, PIP_CONFIG_FILE=chosen, PIP_INDEX_URL=INDEX)["UV_DEFAULT_INDEX"] == INDEX


def test_what_uv_itself_is_told_wins(tmp_path: Path) -> None:
    seen = told(tmp_path, PIP_INDEX_URL=INDEX, UV_DEFAULT_INDEX="https://uv.example")
    assert seen["UV_DEFAULT_INDEX"] == "https://uv.example"


def test_uv_fetches_no_interpreter_and_keeps_its_cache_in_the_home(tmp_path: Path) -> None:
    seen = told(tmp_path, UV_CACHE_DIR="/elsewhere", UV_PYTHON_DOWNLOADS="automatic")
    assert (seen["UV_PYTHON_DOWNLOADS"], seen["UV_CACHE_DIR"]) == ("never", str(tmp_path / "uv"))


def test_nothing_of_attune_reaches_a_build_tool() -> None:
    variables = {"ATTUNE__DATABASE__PASSWORD": "x", "HTTPS_PROXY": "p", "npm_config_registry": "r", "SECRET": "s"}
    assert kept_environment(variables, prefix="npm_config_") == {"HTTPS_PROXY": "p", "npm_config_registry": "r"}


def test_credentials_are_taken_out_of_what_a_tool_says() -> None:
    said = last_lines(f"error: \x1b[31mcannot fetch\x1b[0m {INDEX}/a and https://token@packages.example/b")
    assert "hunter2" not in said
    assert "token@" not in said
    assert said.startswith("error: cannot fetch https://")
