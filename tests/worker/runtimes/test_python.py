"""What the author of a Python action can rely on, warm or cold."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from attune.domain.json_values import Json
from attune.domain.retry import Ending, Outcome
from attune.worker.runners.protocol import Stream
from tests.witness.machine import Machine, a_machine
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt


@pytest.fixture(scope="module", params=[True, False], ids=["warm", "cold"])
async def machine(request: pytest.FixtureRequest) -> AsyncIterator[Machine]:
    async with a_machine(fork_server=request.param) as made:
        yield made


async def run(machine: Machine, script: str, printed: Printed | None = None, **changes: object) -> Ending:
    name = str(changes.pop("name", "work.py"))
    machine.write(f"actions/{name}", script, digest=NO_DIGEST)
    attempt = make_attempt(None, runner="python", entry_point=name, **changes)
    return await machine.runners["python"].run(attempt, printed or Printed())


def failure_of(ending: Ending) -> tuple[str, str]:
    assert ending.outcome is Outcome.FAILED, ending
    assert ending.failure is not None
    return ending.failure.code, ending.failure.message


async def test_the_function_gets_its_parameters_by_name_and_its_value_is_the_result(machine: Machine) -> None:
    script = "def run(name: str, count: int = 1) -> dict:\n    print('chat')\n    return {'text': name * count}\n"
    printed = Printed()
    ending = await run(machine, script, printed, parameters={"name": "ä", "count": 3})
    assert ending.result == {"text": "äää"}
    assert printed.content[Stream.STDOUT] == b"chat\n"


async def test_the_function_may_be_asynchronous(machine: Machine) -> None:
    ending = await run(machine, "import asyncio\n\nasync def run():\n    await asyncio.sleep(0)\n    return [1]\n")
    assert ending.result == [1]


async def test_parameters_in_a_file_reach_the_function_too(machine: Machine) -> None:
    ending = await run(machine, "def run(n):\n    return n\n", parameters={"n": 5}, parameter_delivery="file")
    assert ending.result == 5


@pytest.mark.parametrize(
    ("script", "parameters", "said"),
    [
        ("def run(name):\n    return 1\n", {}, "run() missing 1 required positional argument: 'name'"),
        ("def run():\n    return 1\n", {"n": 1}, "run() got an unexpected keyword argument 'n'"),
    ],
)
async def test_parameters_that_do_not_fit_are_named(machine: Machine, script: str, parameters: Json, said: str) -> None:
    assert failure_of(await run(machine, script, parameters=parameters)) == ("bad_parameters", said)


async def test_parameters_in_another_format_are_refused(machine: Machine) -> None:
    ending = await run(machine, "def run(n):\n    return n\n", parameters={"n": 5}, parameter_format="yaml")
    assert failure_of(ending) == ("bad_parameters", "run() needs parameter_format: json, not yaml")


async def test_an_exception_is_named_and_its_traceback_begins_in_the_action(machine: Machine) -> None:
    script = "import json\n\ndef run():\n    return inner()\n\ndef inner():\n    json.loads('{')\n"
    printed = Printed()
    ending = await run(machine, script, printed)
    code, message = failure_of(ending)
    assert (code, message.partition(":")[0]) == ("exception", "json.decoder.JSONDecodeError")
    assert ending.exit_code == 1
    traceback = printed.content[Stream.STDERR].decode()
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert 'work.py", line 4, in run' in traceback.splitlines()[1]
    assert "python_host" not in traceback


async def test_a_type_error_inside_the_function_is_its_own(machine: Machine) -> None:
    assert failure_of(await run(machine, "def run():\n    return len(5)\n"))[0] == "exception"


async def test_a_file_that_is_no_python_says_where(machine: Machine) -> None:
    code, message = failure_of(await run(machine, "def run(:\n"))
    assert (code, message.partition(":")[0]) == ("exception", "SyntaxError")
    assert "work.py, line 1" in message


@pytest.mark.parametrize("value", ["object()", "float('nan')", "{(1, 2): 3}", "{'a': b'x'}"])
async def test_a_value_that_is_no_json_fails(machine: Machine, value: str) -> None:
    code, message = failure_of(await run(machine, f"def run():\n    return {value}\n"))
    assert code == "bad_output"
    assert message.startswith("run() returned what is no JSON")


async def test_values_that_everybody_writes_alike_are_written(machine: Machine) -> None:
    script = """
import dataclasses, datetime, decimal, pathlib, uuid

@dataclasses.dataclass
class Point:
    x: int

def run():
    return [Point(1), datetime.date(2024, 2, 29), decimal.Decimal("1.10"), pathlib.Path("/a"), {5}, (1, 2), None]
"""
    ending = await run(machine, script)
    assert ending.result == [{"x": 1}, "2024-02-29", "1.10", "/a", [5], [1, 2], None]


@pytest.mark.parametrize(("last", "code"), [("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('no')", 1)])
async def test_an_exit_is_the_actions_own(machine: Machine, last: str, code: int) -> None:
    for script in (f"import sys\n{last}\n", f"import sys\n\ndef run():\n    {last}\n"):
        ending = await run(machine, script)
        assert ending.exit_code == code
        if code:
            assert failure_of(ending) == ("exit_code", f"exited with {code}")


async def test_a_plain_script_reads_stdin_and_prints_its_result(machine: Machine) -> None:
    script = "import json, sys\nif __name__ == '__main__':\n    print(json.dumps(json.load(sys.stdin)['n'] + 1))\n"
    ending = await run(machine, script, parameters={"n": 1}, output_format="json")
    assert ending.result == 2


async def test_a_file_with_the_function_is_not_run_as_a_script(machine: Machine) -> None:
    script = "def run():\n    return 'function'\n\nif __name__ == '__main__':\n    raise SystemExit('script')\n"
    assert (await run(machine, script)).result == "function"


async def test_modules_of_the_pack_are_found_and_stand_in_nobodys_way(machine: Machine) -> None:
    machine.write("lib/ours.py", "VALUE = 'ours'\n", digest=NO_DIGEST)
    machine.write("actions/beside.py", "VALUE = 'beside'\n", digest=NO_DIGEST)
    script = "import beside, email.message, ours\n\ndef run():\n    return [ours.VALUE, beside.VALUE]\n"
    assert (await run(machine, script, name="email.py")).result == ["ours", "beside"]
    (machine.write("actions/email.py", "", digest=NO_DIGEST)).unlink()


async def test_what_ends_a_python_ends_an_action(machine: Machine) -> None:
    script = """
import atexit, threading, time
atexit.register(lambda: print("goodbye"))
threading.Thread(target=lambda: (time.sleep(0.05), print("thread"))).start()
print("unfinished", end="")
"""
    printed = Printed()
    ending = await run(machine, script, printed)
    assert ending.outcome is Outcome.SUCCEEDED
    assert printed.content[Stream.STDOUT] == b"unfinishedthread\ngoodbye\n"


async def test_each_line_is_there_when_it_is_printed(machine: Machine) -> None:
    printed = Printed()
    script = "import os\nprint('first')\nos._exit(0)\n"
    await run(machine, script, printed)
    assert printed.content[Stream.STDOUT] == b"first\n"


async def test_children_of_every_kind_can_be_started(machine: Machine) -> None:
    script = """
import multiprocessing, subprocess

def double(n):
    return 2 * n

def run():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doubled = pool.map(double, [1, 2])
    return [doubled, subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout]
"""
    ending = await run(machine, script)
    assert ending.result == [[2, 4], "hi\n"], ending
