"""A small process that starts others: it forks, shuts the child in, and there becomes the command.

    python -I -S -B server.py SOCKET PARENT [confined] [forking]

It imports nothing of Attune and little of Python, for two reasons: what it does not hold need not be copied with each
fork, and it can run under an interpreter that knows nothing of Attune. There, `serve` is given another `enter`, which
runs Python code in the child instead of executing a command.

It has one thread, no secret that outlives its request, and ends with the worker. What it started ends with it.
"""

import ctypes
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER = 0x10000000
# The same number on every architecture.
SYS_CLONE3 = 435
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_REC_PRIVATE = 0x4000 | 0x40000
CAPABILITIES_MAX = 64

REQUEST_BYTES_MAX = 160 * 1024
ANCILLARY_BYTES_MAX = socket.CMSG_SPACE(8 * 4)
NOTE_BYTES_MAX = 512
UMASK = 0o022
CANNOT_ENTER = 127
HANDLED = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Whoever starts a launcher leaves room behind this, for the marks of children that stay in its program.
MARK = b"ATTUNE_EXECUTION_MARKER="

# Keeps the interpreter's lock during a call: after `clone3` there is nobody in the child who could give it back.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]
# Inside a new user namespace nobody can ask for them any more.
_OWN_UID = os.geteuid()
_OWN_GID = os.getegid()


class Request:
    """What is to be started, as it came through the socket: fields `name=value`, each ended by a zero byte."""

    __slots__ = ("descriptors", "directory", "environment", "gid", "key", "limits", "spaces", "uid", "words")

    def __init__(self, content: bytes, descriptors: Sequence[int]) -> None:
        self.descriptors = descriptors
        self.key = b""
        self.words: list[bytes] = []
        self.environment: dict[bytes, bytes] = {}
        self.directory = b"/"
        self.limits: list[tuple[int, int]] = []
        # Of `clone`; 0 for none.
        self.spaces = 0
        self.uid: int | None = None
        self.gid = 0
        for field in content.split(b"\0"):
            name, _, value = field.partition(b"=")
            self._take(name, value)

    def _take(self, name: bytes, value: bytes) -> None:
        if name == b"env":
            variable, _, text = value.partition(b"=")
            self.environment[variable] = text
        elif name == b"word":
            self.words.append(value)
        elif name == b"limit":
            number, _, most = value.partition(b":")
            self.limits.append((int(number), int(most)))
        elif name == b"key":
            self.key = value
        elif name == b"directory":
            self.directory = value
        elif name == b"account":
            uid, _, gid = value.partition(b":")
            self.uid, self.gid = int(uid), int(gid)
        elif name == b"spaces":
            self.spaces = int(value)


def exec_command(request: Request) -> None:
    """Become the command; returns never."""
    os.execvpe(request.words[0], request.words, request.environment)  # noqa: S606  that is what it is for


def stay(request: Request) -> None:
    """For an `enter` that goes on in this program: leave what is the launcher's, and take what is the request's."""
    signal.set_wakeup_fd(-1)
    for number in HANDLED:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    _show_mark(request.environment)
    os.environb.clear()
    os.environb.update(request.environment)
    _call(_libc.prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)


class Server:
    """Reads requests and answers `started KEY PID`, `refused KEY ERRNO STEP` and `ended KEY STATUS ERRNO STEP`."""

    def __init__(self, control: socket.socket, enter: Callable[[Request], None], start: "_Start | None") -> None:
        self._control = control
        self._enter = enter
        self._start = start
        self._keys: dict[int, bytes] = {}
        # From a child that could not enter its command: errno and step; from the first one of a namespace: its status.
        self._failures: dict[bytes, bytes] = {}
        self._statuses: dict[bytes, int] = {}
        self._notes, self._noting = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._notes.setblocking(False)  # noqa: FBT003  the standard library's signature
        self._woken, self._waking = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Tells a child of the launcher's end even from inside a namespace, where it has no parent.
        self._own = os.pidfd_open(os.getpid())

    def run(self) -> None:
        """Until the worker is gone."""
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        poller = select.poll()
        for descriptor in (self._control.fileno(), self._woken, self._notes.fileno()):
            poller.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            if self._notes.fileno() in ready:
                self._read_notes()
            if self._control.fileno() in ready and not self._take_request():
                return

    def _take_request(self) -> bool:
        # Not `recv_fds`, which forgets the flag: every child would inherit what others were given.
        content, ancillary, _, _ = self._control.recvmsg(
            REQUEST_BYTES_MAX, ANCILLARY_BYTES_MAX, socket.MSG_CMSG_CLOEXEC
        )
        if not content:
            return False
        descriptors = [each for _, _, given in ancillary for each in memoryview(given).cast("i")]
        request = Request(content, descriptors)
        try:
            pid = self._fork(request)
            self._keys[pid] = request.key
            self._control.send(b"started %s %d" % (request.key, pid))
        except OSError as error:
            step = getattr(error, "step", "start a process").encode()
            self._control.send(b"refused %s %d %s" % (request.key, error.errno or 0, step))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _fork(self, request: Request) -> int:
        # A command without a path is looked for, which the quick way cannot.
        if self._start is not None and not request.spaces and b"/" in request.words[0]:
            return self._start(request)
        pid = _clone(request.spaces) if request.spaces else os.fork()
        if pid == 0:
            # Whatever happens, the child must not go on as a second launcher.
            try:
                self._become(request)
            finally:
                os._exit(CANNOT_ENTER)
        return pid

    def _become(self, request: Request) -> None:
        for step, act in self._steps(request):
            try:
                act(request)
            except OSError as error:
                failed = getattr(error, "step", step).encode()
                os.write(self._noting.fileno(), b"failed %s %d %s" % (request.key, error.errno or 0, failed))
                return

    def _steps(self, request: Request) -> Iterator["_Step"]:
        if request.spaces:
            yield from _SPACE_STEPS
            yield "end with the launcher", self._bind
            yield "start the first process of its namespace", self._divide
            yield from _STEPS
        else:
            yield from _STEPS
            yield "end with the launcher", self._bind
        yield "enter its directory", _enter_directory
        yield "", self._enter

    def _bind(self, _: Request) -> None:
        """Die with the launcher. After every change of account, because that would clear it."""
        _call(_libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        gone = select.poll()
        gone.register(self._own, select.POLLIN)
        if gone.poll(0):
            os._exit(CANNOT_ENTER)

    def _divide(self, request: Request) -> None:
        """In a new process space: the child goes on, and the first process there only waits for it."""
        signal.set_wakeup_fd(-1)
        # The account was taken already, and may not be taken twice.
        request.uid = None
        inner = os.fork() if self._start is None else self._start(request)
        if inner == 0:
            return
        for descriptor in request.descriptors:
            os.close(descriptor)
        while True:
            pid, status = os.wait()
            if pid == inner:
                # Told apart from its own end: no signal that ended the child could end the first process.
                os.write(self._noting.fileno(), b"status %s %d" % (request.key, status))
                os._exit(0)

    def _read_notes(self) -> None:
        while True:
            try:
                note = self._notes.recv(NOTE_BYTES_MAX)
            except BlockingIOError:
                return
            kind, key, text = note.split(b" ", 2)
            if kind == b"failed":
                self._failures[key] = text
            else:
                self._statuses[key] = int(text)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            # A child leaves its notes before it ends.
            self._read_notes()
            key = self._keys.pop(pid)
            status = self._statuses.pop(key, status)
            self._control.send(b"ended %s %d %s" % (key, status, self._failures.pop(key, b"0 ")))


def _map_account(request: Request) -> None:
    """In a user namespace of its own, the account keeps its number and means nothing outside."""
    if not request.spaces & CLONE_NEWUSER:
        return
    # These files belong to root while nobody may look into this process.
    _call(_libc.prctl, PR_SET_DUMPABLE, 1, 0, 0, 0)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_OWN_UID} {_OWN_UID} 1"),
        ("gid_map", f"{_OWN_GID} {_OWN_GID} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    _call(_libc.prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)


def _mount_processes(_: Request) -> None:
    """Show only the processes of this namespace, and let no mount be seen outside."""
    _call(_libc.mount, b"none", b"/", None, MS_REC_PRIVATE, None)
    _call(_libc.mount, b"proc", b"/proc", b"proc", MS_NOSUID_NODEV_NOEXEC, None)


def _take_session(_: Request) -> None:
    os.setsid()


def _take_streams(request: Request) -> None:
    for number, descriptor in enumerate(request.descriptors):
        os.dup2(descriptor, number)


def _take_limits(request: Request) -> None:
    for number, most in request.limits:
        _, ceiling = resource.getrlimit(number)
        least = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
        resource.setrlimit(number, (least, least))


def _take_account(request: Request) -> None:
    if request.uid is not None and os.geteuid() != request.uid:
        os.setgroups([])
        os.setresgid(request.gid, request.gid, request.gid)
        os.setresuid(request.uid, request.uid, request.uid)


def _enter_directory(request: Request) -> None:
    os.chdir(request.directory)


_Start = Callable[[Request], int]
_Step = tuple[str, Callable[[Request], None]]
# For the first process of a new namespace, and for what becomes the command.
_SPACE_STEPS: tuple[_Step, ...] = (
    ("map its account", _map_account),
    ("mount its process table", _mount_processes),
    ("leave the session", _take_session),
    ("become its account", _take_account),
)
_STEPS: tuple[_Step, ...] = (
    ("leave the session", _take_session),
    ("take its streams", _take_streams),
    ("take its limits", _take_limits),
    ("become its account", _take_account),
)


def serve(
    control: socket.socket,
    *,
    parent: int,
    enter: Callable[[Request], None] = exec_command,
    start: _Start | None = None,
    confined: bool = False,
) -> None:
    """Serve the process `parent` until it is gone.

    A forked child goes on with `enter`. `start`, if there is one, starts whatever needs no namespace by itself.
    `confined` if nothing started here will ever be root's.
    """
    _call(_libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    # Of an account's other processes none may read what passes through here.
    _call(_libc.prctl, PR_SET_DUMPABLE, 0, 0, 0, 0)
    # Both are inherited, and neither can be taken back.
    _call(_libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if confined:
        for capability in range(CAPABILITIES_MAX):
            _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    control.set_inheritable(False)
    os.umask(UMASK)
    # Python ignores some, whoever started the worker may have ignored others, and a command would inherit that.
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # A handler, in contrast, ends with the program that set it.
    for number in HANDLED:
        signal.signal(number, lambda *_: None)
    server = Server(control, enter, start)
    # What is never looked at by the collector is not copied because of it.
    gc.collect()
    gc.freeze()
    server.run()


def _show_mark(environment: dict[bytes, bytes]) -> None:
    """Write the mark where the system shows the environment: that of the program, which stays what it was."""
    mark = MARK + environment.get(MARK[:-1], b"")
    at = ctypes.POINTER(ctypes.c_void_p).in_dll(_libc, "environ")
    index = 0
    while address := at[index]:
        room = ctypes.string_at(address)
        if room.startswith(MARK) and len(mark) <= len(room):
            ctypes.memmove(address, mark.ljust(len(room), b"\0"), len(room))
            return
        index += 1


def _clone(spaces: int) -> int:
    """As `os.fork`, into new namespaces."""
    arguments = (ctypes.c_uint64 * 8)(spaces, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    return _call(_libc.syscall, SYS_CLONE3, ctypes.byref(arguments), ctypes.c_size_t(ctypes.sizeof(arguments)))


def _call(function: Callable[..., int], *arguments: object) -> int:
    result = function(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _quick_start() -> _Start | None:
    """The quick way, where this machine allows it."""
    sys.path.insert(0, os.path.dirname(__file__))  # noqa: PTH120  paths are not worth their memory here
    try:
        # It lies beside this file, which belongs to no package when it runs.
        start: _Start = __import__("quick").Quick().start
    except OSError:
        return None
    return start


if __name__ == "__main__":
    serve(
        socket.socket(fileno=int(sys.argv[1])),
        parent=int(sys.argv[2]),
        start=None if "forking" in sys.argv[3:] else _quick_start(),
        confined="confined" in sys.argv[3:],
    )
