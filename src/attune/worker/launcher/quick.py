"""Starts a command without copying the launcher first: the child makes a list of system calls, the last its execve.

`fork` copies the memory of a Python process, and every line of Python that runs in the child copies more of it; that
costs three times as much as the command itself. `posix_spawn` copies nothing, but knows neither limits nor accounts
nor the parent-death signal. So this does what `posix_spawn` does, with a list of our own: while the child borrows the
launcher's memory, it may run no Python, and makes the calls of the list by the few instructions below.

Only for processors whose instructions these are; elsewhere, and where a system forbids to run them, the launcher forks.
"""

import ctypes
import os
import resource
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attune.worker.launcher.server import Request

# steps: endbr64; mov %rdi,%rbx; mov %rdi,%rbp
#     1: mov (%rbx),%rax; mov 8(%rbx),%rdi; mov 16(%rbx),%rsi; mov 24(%rbx),%rdx; mov 32(%rbx),%r10; mov 40(%rbx),%r8
#        syscall; mov 48(%rbx),%rcx; test %rcx,%rcx; jnz 2f; test %rax,%rax; jns 4f; jmp 3f
#     2: cmp %rax,48(%rbx); je 4f
#     3: mov %rax,-8(%rbp); mov %rbx,-16(%rbp); mov $60,%eax; mov $127,%edi; syscall
#     4: add $56,%rbx; jmp 1b
INSTRUCTIONS = bytes.fromhex(
    "f30f1efa4889fb4889fd488b03488b7b08488b7310488b53184c8b53204c8b43280f05488b4b304885c975074885c0791c"
    "eb06483943307414488945f848895df0b83c000000bf7f0000000f054883c338ebb7"
)
MACHINE = "x86_64"
# One entry of the list: the call's number, five arguments, and what it must return; 0 for anything but an error.
ENTRY_WORDS = 7
WORD_BYTES = 8
STACK_BYTES = 64 * 1024
CLONE_VM_VFORK = 0x100 | 0x4000
PROT_READ_EXEC = 1 | 4
MAP_PRIVATE = 2
MAP_FAILED = ctypes.c_void_p(-1).value
PR_SET_PDEATHSIG = 1

SYS_DUP2, SYS_EXECVE, SYS_CHDIR, SYS_GETPPID, SYS_SETSID = 33, 59, 80, 110, 112
SYS_SETGROUPS, SYS_SETRESUID, SYS_SETRESGID, SYS_PRCTL, SYS_PRLIMIT = 116, 117, 119, 157, 302

_libc = ctypes.PyDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]


class NotStarted(OSError):
    """A call failed; `step` says in words what it was for, and is empty for the last one."""

    def __init__(self, number: int, step: str) -> None:
        super().__init__(number, os.strerror(number))
        self.step = step


class Quick:
    """The instructions, loaded; raises OSError where they cannot be."""

    def __init__(self) -> None:
        if os.uname().machine != MACHINE:
            raise OSError("these instructions are another processor's")
        descriptor = os.memfd_create("steps", os.MFD_CLOEXEC)
        os.write(descriptor, INSTRUCTIONS)
        self._code = _libc.mmap(None, len(INSTRUCTIONS), PROT_READ_EXEC, MAP_PRIVATE, descriptor, 0)
        os.close(descriptor)
        if self._code == MAP_FAILED:
            raise OSError(ctypes.get_errno(), "the instructions may not be run")
        self._stack = ctypes.create_string_buffer(STACK_BYTES)
        # Grows downwards, and begins at a multiple of 16.
        self._stack_top = (ctypes.addressof(self._stack) + STACK_BYTES) & ~15

    def start(self, request: "Request") -> int:
        """The number of the started process; raises NotStarted."""
        calls = _Calls()
        calls.add("leave the session", SYS_SETSID)
        for number, descriptor in enumerate(request.descriptors):
            calls.add("take its streams", SYS_DUP2, descriptor, number)
        for number, most in request.limits:
            _, ceiling = resource.getrlimit(number)
            least = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
            calls.add("take its limits", SYS_PRLIMIT, 0, number, calls.keep((ctypes.c_uint64 * 2)(least, least)))
        if request.uid is not None:
            calls.add("become its account", SYS_SETGROUPS, 0, 0)
            calls.add("become its account", SYS_SETRESGID, request.gid, request.gid, request.gid)
            calls.add("become its account", SYS_SETRESUID, request.uid, request.uid, request.uid)
        # After the change of account, which would clear it; and whoever starts it may have ended before.
        calls.add("end with the launcher", SYS_PRCTL, PR_SET_PDEATHSIG, signal.SIGKILL)
        calls.add("end with the launcher", SYS_GETPPID, must_return=os.getpid())
        calls.add("enter its directory", SYS_CHDIR, calls.text(request.directory))
        environment = [name + b"=" + value for name, value in request.environment.items()]
        words = calls.text(request.words[0]), calls.texts(request.words), calls.texts(environment)
        calls.add("", SYS_EXECVE, *words)
        return calls.make(self._code, self._stack_top)


class _Calls:
    """The list, and whatever it points to, which must stay where it is until the child has gone its own way."""

    def __init__(self) -> None:
        self._steps: list[str] = []
        # In front: where the child notes what failed, and with what.
        self._numbers = [0, 0]
        self._kept: list[object] = []

    def add(self, step: str, call: int, *arguments: int, must_return: int = 0) -> None:
        self._steps.append(step)
        room = ENTRY_WORDS - 2 - len(arguments)
        self._numbers += [call, *arguments, *[0] * room, must_return]

    def keep(self, value: "ctypes.Array[ctypes.c_uint64] | ctypes.Array[ctypes.c_char_p]") -> int:
        self._kept.append(value)
        return ctypes.addressof(value)

    def text(self, value: bytes) -> int:
        # The first of a list of one.
        return ctypes.c_uint64.from_address(self.texts([value])).value

    def texts(self, values: list[bytes]) -> int:
        return self.keep((ctypes.c_char_p * (len(values) + 1))(*values, None))

    def make(self, code: int, stack_top: int) -> int:
        entries = (ctypes.c_uint64 * len(self._numbers))(*self._numbers)
        first = ctypes.addressof(entries) + 2 * WORD_BYTES
        # Returns as soon as the child runs its command or has ended.
        pid: int = _libc.clone(code, stack_top, CLONE_VM_VFORK | signal.SIGCHLD, first)
        if pid < 0:
            raise NotStarted(ctypes.get_errno(), "start a process")
        if entries[0]:
            os.waitpid(pid, 0)
            failed = (entries[0] - first) // (ENTRY_WORDS * WORD_BYTES)
            raise NotStarted(-ctypes.c_int64(entries[1]).value & 0xFFFF, self._steps[failed])
        return pid
