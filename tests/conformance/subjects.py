"""Every runtime with, for each case, some work that comes to it. A new runtime is one more entry in SUBJECTS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from attune.domain.definitions import Runner as RunnerName
from attune.domain.http.allowed import parse_allow_list
from tests.conformance.surroundings import Surroundings, containers, node, nothing, server
from tests.witness.node import CURE as CURE_OF_NODE
from tests.witness.podman import CURE, IMAGE

MEBIBYTE = 1024 * 1024
# More than is kept of a stream.
HUGE_BYTES = 20 * MEBIBYTE
Work = Mapping[str, object]

PROMISE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
CASES = (
    "success",
    "failure",
    "timeout",
    "cancel",
    "huge output",
    "bad output",
    "missing interpreter",
    "non-UTF-8",
    "secret in output",
)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One runtime. `files` are those of its pack, `settings` changes to the worker's plan."""

    name: str
    runner: str
    success: Work
    failure: Work
    # Prints `ready` where it can print, ignores what it is not made to obey, and never ends by itself.
    endless: Work
    unpromised: Work
    oversized: Work
    # These may be missing; then `absent` says why, by the case's name.
    nowhere: Work | None = None
    huge: Work | None = None
    bad: Work | None = None
    no_interpreter: Work | None = None
    not_utf8: Work | None = None
    secret: Work | None = None
    prints: bool = True
    files: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[], AbstractAsyncContextManager[Surroundings]] = nothing
    # What to do where it cannot run.
    cure: str | None = None


NATIVE = Subject(
    name="native",
    runner=RunnerName.NATIVE,
    success={"entry_point": "echo", "parameters": {"message": "hi"}},
    failure={"entry_point": "fail", "parameters": {"message": "no"}},
    endless={"entry_point": "sleep", "parameters": {"seconds": 300}},
    nowhere={"entry_point": "nowhere"},
    unpromised={"entry_point": "echo", "output_schema": PROMISE},
    oversized={"entry_point": "set", "parameters": {"values": {"long": "x" * 2 * MEBIBYTE}}},
    bad={"entry_point": "echo", "output_schema": PROMISE},
    prints=False,
    absent={
        "huge output": "its functions print nothing",
        "missing interpreter": "it needs none",
        "non-UTF-8": "its functions print nothing",
        "secret in output": "its functions print nothing",
    },
)

SHELL = Subject(
    name="shell",
    runner=RunnerName.SHELL,
    success={"command": "cat"},
    failure={"command": "exit 1"},
    endless={"command": "trap '' TERM; echo ready; while :; do sleep 0.02; done"},
    nowhere={"entry_point": "nowhere.sh"},
    unpromised={"command": 'echo "{}"', "output_format": "json", "output_schema": PROMISE},
    oversized={
        "command": "printf '\"'; head -c 2097152 /dev/zero | tr \"\\0\" x; printf '\"'",
        "output_format": "json",
    },
    huge={"command": f"head -c {HUGE_BYTES} /dev/zero; head -c {MEBIBYTE} /dev/zero >&2"},
    bad={"command": "echo not json", "output_format": "json"},
    no_interpreter={"entry_point": "lost.sh"},
    not_utf8={"command": "printf 'a\\377b'"},
    secret={"command": "cat"},
    files={"lost.sh": "#!/no/such/interpreter\n"},
)

_PYTHON_FILES = {
    "success.py": "def run(name: str, count: int = 1) -> dict:\n    return {'greeting': name * count}\n",
    "failure.py": "def run():\n    raise ValueError('no')\n",
    "endless.py": "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\n"
    "while True:\n    time.sleep(0.02)\n",
    "unpromised.py": "def run():\n    return {}\n",
    "oversized.py": f"def run():\n    return 'x' * {2 * MEBIBYTE}\n",
    "huge.py": f"import os, sys\nfor _ in range(20):\n    os.write(1, bytes({MEBIBYTE}))\n"
    f"sys.stderr.write('\\0' * {MEBIBYTE})\n",
    "bad.py": "def run():\n    return object()\n",
    "not_utf8.py": "import sys\nsys.stdout.buffer.write(b'a\\xffb')\n",
    "secret.py": "import sys\nprint(sys.stdin.read())\n",
}


def _python(name: str, **settings: object) -> Subject:
    return Subject(
        name=name,
        runner=RunnerName.PYTHON,
        success={"entry_point": "success.py", "parameters": {"name": "hi", "count": 2}},
        failure={"entry_point": "failure.py"},
        endless={"entry_point": "endless.py"},
        nowhere={"entry_point": "nowhere.py"},
        unpromised={"entry_point": "unpromised.py", "output_schema": PROMISE},
        oversized={"entry_point": "oversized.py"},
        huge={"entry_point": "huge.py"},
        bad={"entry_point": "bad.py"},
        # The machine of this case has an interpreter that goes away after it was found.
        no_interpreter={"entry_point": "success.py"},
        not_utf8={"entry_point": "not_utf8.py"},
        secret={"entry_point": "secret.py"},
        files=_PYTHON_FILES,
        settings=settings,
    )


NODE = Subject(
    name="node",
    runner=RunnerName.NODE,
    success={"entry_point": "success.js", "parameters": {"name": "hi"}, "output_format": "json"},
    failure={"entry_point": "failure.js"},
    endless={"entry_point": "endless.js"},
    nowhere={"entry_point": "nowhere.js"},
    unpromised={"entry_point": "unpromised.js", "output_format": "json", "output_schema": PROMISE},
    oversized={"entry_point": "oversized.js", "output_format": "json"},
    huge={"entry_point": "huge.js"},
    bad={"entry_point": "failure.mjs", "output_format": "json"},
    no_interpreter={"entry_point": "success.js"},
    not_utf8={"entry_point": "not_utf8.js"},
    secret={"entry_point": "secret.js"},
    files={
        "success.js": "const told = JSON.parse(require('fs').readFileSync(0));\n"
        "console.log(JSON.stringify({greeting: told.name}));\n",
        "failure.js": "process.exit(1)\n",
        "failure.mjs": "console.log('not json')\n",
        "endless.js": "process.on('SIGTERM', () => {});\nconsole.log('ready');\nsetInterval(() => {}, 1000);\n",
        "unpromised.js": "console.log('{}')\n",
        "oversized.js": f"process.stdout.write(JSON.stringify('x'.repeat({2 * MEBIBYTE})))\n",
        "huge.js": f"process.stdout.write(Buffer.alloc({HUGE_BYTES}));\n"
        f"process.stderr.write(Buffer.alloc({MEBIBYTE}));\n",
        "not_utf8.js": "process.stdout.write(Buffer.from([97, 255, 98]))\n",
        "secret.js": "console.log(require('fs').readFileSync(0).toString())\n",
    },
    around=node,
    cure=CURE_OF_NODE,
)

HTTP = Subject(
    name="http",
    runner=RunnerName.HTTP,
    success={"http": {"url": "/success"}},
    failure={"http": {"url": "/failure"}},
    endless={"http": {"url": "/endless"}},
    unpromised={"http": {"url": "/success"}, "output_schema": PROMISE},
    oversized={"http": {"url": "/oversized"}},
    huge={"http": {"url": "/huge"}},
    bad={"http": {"url": "/success"}, "output_schema": PROMISE},
    not_utf8={"http": {"url": "/bytes"}},
    secret={"http": {"method": "POST", "url": "/echo", "json": {"password": {"parameter": "password"}}}},
    prints=False,
    settings={"http_allow": parse_allow_list("127.0.0.0/8")},
    absent={"missing interpreter": "it needs none"},
    around=server,
)


def _boxed(work: Work | None) -> dict[str, object]:
    return {"image": IMAGE, **(work or {})}


# The same scripts in an image of nothing but busybox.
CONTAINER = Subject(
    name="container (podman)",
    runner=RunnerName.CONTAINER,
    success=_boxed(SHELL.success),
    failure=_boxed(SHELL.failure),
    endless=_boxed(SHELL.endless),
    unpromised=_boxed(SHELL.unpromised),
    oversized=_boxed(SHELL.oversized),
    nowhere=_boxed(SHELL.nowhere),
    huge=_boxed(SHELL.huge),
    bad=_boxed(SHELL.bad),
    no_interpreter=_boxed(SHELL.no_interpreter),
    not_utf8=_boxed(SHELL.not_utf8),
    secret=_boxed(SHELL.secret),
    files=SHELL.files,
    settings={"container": "podman"},
    around=containers,
    cure=CURE,
)

SUBJECTS = (
    NATIVE,
    SHELL,
    _python("python cold", fork_server=False),
    _python("python fork server"),
    NODE,
    HTTP,
    CONTAINER,
)
