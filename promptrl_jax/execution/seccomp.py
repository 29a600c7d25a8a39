"""Filters that restrict the system calls of a candidate to a list.

Calls that a pure computation needs are allowed. All others fail with EPERM, so
a candidate cannot create processes, programs, sockets, mounts, keys or
namespaces, signal or trace other processes, change owners, or use calls that
future kernels add. Numbers above those known here fail with ENOSYS, at which
libraries fall back to older calls.

There are two filters, and the stricter one decides. The zygote enters the long
one once; it also allows the few calls that start and end candidates. Each
candidate enters the short one, which forbids those calls.
"""

from __future__ import annotations

import ctypes
import errno
import functools

from promptrl_jax.execution import kernel

# Numbers of system calls by name, on x86-64 and on aarch64.
_Table = dict[str, tuple[int | None, int | None]]


def _table(text: str) -> _Table:
  """Parses "name x86-64 aarch64, ..."; "-" stands for no such call."""
  rows = (row.split() for row in text.split(','))
  return {name: (_number(one), _number(two)) for name, one, two in rows}


def _number(text: str) -> int | None:
  return None if text == '-' else int(text)


_ALLOWED = {
  # Files and pipes; other layers restrict where these may be.
  **_table("""
    read 0 63, write 1 64, open 2 -, close 3 57, stat 4 -, fstat 5 80,
    lstat 6 -, poll 7 -, lseek 8 62, ioctl 16 29, pread64 17 67,
    pwrite64 18 68, readv 19 65, writev 20 66, access 21 -, pipe 22 -,
    select 23 -, dup 32 23, dup2 33 -, sendfile 40 71, fcntl 72 25,
    flock 73 32, fsync 74 82, fdatasync 75 83, truncate 76 45,
    ftruncate 77 46, getdents 78 -, getcwd 79 17, chdir 80 49, fchdir 81 50,
    rename 82 -, mkdir 83 -, rmdir 84 -, creat 85 -, link 86 -, unlink 87 -,
    symlink 88 -, readlink 89 -, umask 95 166, statfs 137 43, fstatfs 138 44,
    getdents64 217 61, fadvise64 221 223, openat 257 56, mkdirat 258 34,
    newfstatat 262 79, unlinkat 263 35, renameat 264 38, linkat 265 37,
    symlinkat 266 36, readlinkat 267 78, faccessat 269 48, pselect6 270 72,
    ppoll 271 73, epoll_create 213 -, epoll_wait 232 -, epoll_ctl 233 21,
    epoll_pwait 281 22, fallocate 285 47, eventfd2 290 19,
    epoll_create1 291 20, dup3 292 24, pipe2 293 59, preadv 295 69,
    pwritev 296 70, renameat2 316 276, copy_file_range 326 285, statx 332 291,
    close_range 436 436, faccessat2 439 439
  """),
  # The channel to the judge.
  **_table("""
    sendto 44 206, recvfrom 45 207, shutdown 48 210, socketpair 53 199
  """),
  # Memory.
  **_table("""
    mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214, mremap 25 216,
    msync 26 227, mincore 27 232, madvise 28 233
  """),
  # Signals to itself, threads, time.
  **_table("""
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139,
    kill 62 129, sched_yield 24 124, pause 34 -, nanosleep 35 101,
    getitimer 36 102, alarm 37 -, setitimer 38 103, clone 56 220, exit 60 93,
    gettimeofday 96 169, rt_sigpending 127 136, rt_sigtimedwait 128 137,
    rt_sigsuspend 130 133, sigaltstack 131 132, arch_prctl 158 -,
    futex 202 98, time 201 -, set_tid_address 218 96, restart_syscall 219 128,
    clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
    exit_group 231 94, tgkill 234 131, set_robust_list 273 99,
    membarrier 324 283, rseq 334 293
  """),
  # What the process is and what it has.
  **_table("""
    getpid 39 172, uname 63 160, getrlimit 97 163, getrusage 98 165,
    sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176,
    geteuid 107 175, getegid 108 177, getppid 110 173, getpgrp 111 -,
    getgroups 115 158, getpgid 121 155, getsid 124 156, getpriority 140 141,
    sched_getparam 143 121, sched_getscheduler 145 120, prctl 157 167,
    gettid 186 178, sched_getaffinity 204 123, prlimit64 302 261,
    getcpu 309 168, getrandom 318 278
  """),
}
# Calls that only the zygote may make.
_OF_ZYGOTE = _table("""
  fork 57 -, wait4 61 260, waitid 247 95, recvmsg 47 212, setsid 112 157,
  chmod 90 -, fchmodat 268 53, seccomp 317 277
""")
_CLONE3 = 435
_NEWEST = 450  # Numbers above are not known here and fail with ENOSYS.
_AUDIT = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}
_X32 = 0x40000000  # Calls of the x32 table on x86-64.

_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020080
_AF_UNIX = 1
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
# Allowed commands of fcntl: copies, flags and locks. Not owners and signals of
# descriptors, nor leases, which make other processes of the user wait when they
# open a file.
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)
_PR_SET_NAME, _PR_GET_NAME = 15, 16

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000  # | errno
_NR, _ARCH, _ARGS = 0, 4, 16  # Offsets in struct seccomp_data.

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ANY_PID = 0x7FFFFFF1  # Placeholder for a process id; no process has this one.

Instruction = tuple[int, int, int, int]  # code, jump if true, if false, k


class _Filter(ctypes.Structure):
  _fields_ = [
    ('code', ctypes.c_uint16),
    ('jt', ctypes.c_uint8),
    ('jf', ctypes.c_uint8),
    ('k', ctypes.c_uint32),
  ]


class _Program(ctypes.Structure):
  _fields_ = [('len', ctypes.c_uint16), ('filter', ctypes.POINTER(_Filter))]


def enter_zygote() -> None:
  """Restricts this process and its forks, irrevocably, to both lists of calls.

  Raises:
    OSError: the machine is not known, or the kernel refuses the filter.
  """
  _enter(prepare()[0])


def enter_candidate(pid: int) -> None:
  """Forbids this process `pid` the calls that only a zygote may make.

  Raises:
    OSError: the machine is not known, or the kernel refuses the filter.
  """
  _, program, places = prepare()
  for place in places:
    program.filter[place].k = pid
  _enter(program)


def _enter(program: _Program) -> None:
  kernel.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))


@functools.cache
def prepare() -> tuple[_Program, _Program, list[int]]:
  """The packed filters, and the places of the process id in the second one.

  Packing takes as long as all other layers together, so it is done once, before
  the forks.
  """
  machine = kernel.machine()
  second = of_candidate(machine, _ANY_PID)
  places = [i for i, (*_, k) in enumerate(second) if k == _ANY_PID]
  return _packed(of_zygote(machine)), _packed(second), places


def of_zygote(machine: str) -> list[Instruction]:
  """The filter of a zygote, as classic BPF instructions.

  Raises:
    OSError: the numbers of this machine's calls are not known.
  """
  numbers = _numbers(machine, {**_ALLOWED, **_OF_ZYGOTE})
  out: list[Instruction] = [
    (_LOAD, 0, 0, _ARCH),
    (_EQUAL, 1, 0, _AUDIT[machine]),
    (_RETURN, 0, 0, _KILL),
    (_LOAD, 0, 0, _NR),
    (_GREATER, 0, 1, _X32),
    (_RETURN, 0, 0, _KILL),
  ]
  for name, body in _ARGUMENT_CHECKS.items():
    out += [(_EQUAL, 0, len(body), numbers.pop(name)), *body]
  for first, last in _ranges(sorted(numbers.values())):
    out += [
      (_GREATER, 0, 2, first),
      (_GREATER, 1, 0, last + 1),
      (_RETURN, 0, 0, _ALLOW),
    ]
  out += [
    (_EQUAL, 0, 1, _CLONE3),
    (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    (_GREATER, 0, 1, _NEWEST + 1),
    (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    (_RETURN, 0, 0, _REFUSE | errno.EPERM),
  ]
  return out


def of_candidate(machine: str, pid: int) -> list[Instruction]:
  """The filter that a candidate enters in addition to that of its zygote.

  Only the filter of the zygote checks the architecture. `pid` is the only
  process that may be signalled.

  Raises:
    OSError: the numbers of this machine's calls are not known.
  """
  numbers = _numbers(machine, {**_ALLOWED, **_OF_ZYGOTE})
  checks = {
    # Threads, and no process.
    'clone': _compare_bits(0, _CLONE_THREAD, _ALLOW, _REFUSE | errno.EPERM),
    'kill': _only(0, [pid]),
    'tgkill': _only(0, [pid]),
    'prctl': _only(0, [_PR_SET_NAME, _PR_GET_NAME]),
  }
  out: list[Instruction] = [(_LOAD, 0, 0, _NR)]
  for name, body in checks.items():
    out += [(_EQUAL, 0, len(body), numbers[name]), *body]
  for number in _numbers(machine, _OF_ZYGOTE).values():
    out += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
  return [*out, (_RETURN, 0, 0, _ALLOW)]


def _numbers(machine: str, table: _Table) -> dict[str, int]:
  if machine not in _AUDIT:
    raise OSError(
      errno.ENOSYS, f'no table of system calls for {machine}: not guessed'
    )
  column = list(_AUDIT).index(machine)
  return {
    name: number
    for name, by_machine in table.items()
    if (number := by_machine[column]) is not None
  }


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
  """Merges consecutive numbers into ranges (first, last).

  A short filter matters: each time a process enters it, the kernel evaluates it
  once for every system call that exists.
  """
  ranges: list[tuple[int, int]] = []
  for number in numbers:
    if ranges and ranges[-1][1] == number - 1:
      ranges[-1] = (ranges[-1][0], number)
    else:
      ranges.append((number, number))
  return ranges


def _only(argument: int, values: list[int]) -> list[Instruction]:
  return _compare(argument, values, _ALLOW, _REFUSE | errno.EPERM)


def _none_of(argument: int, values: list[int]) -> list[Instruction]:
  return _compare(argument, values, _REFUSE | errno.EPERM, _ALLOW)


def _compare(
  argument: int, values: list[int], if_equal: int, otherwise: int
) -> list[Instruction]:
  # Compares the low half, because the kernel reads these as 32-bit numbers.
  count = len(values)
  jumps = [(_EQUAL, count - i, 0, v) for i, v in enumerate(values)]
  ends = [(_RETURN, 0, 0, otherwise), (_RETURN, 0, 0, if_equal)]
  return [_load_argument(argument), *jumps, *ends]


def _compare_bits(
  argument: int, bits: int, if_any: int, otherwise: int
) -> list[Instruction]:
  return [
    _load_argument(argument),
    (_ANY_BIT, 0, 1, bits),
    (_RETURN, 0, 0, if_any),
    (_RETURN, 0, 0, otherwise),
  ]


def _load_argument(argument: int) -> Instruction:
  return (_LOAD, 0, 0, _ARGS + 8 * argument)


# Calls that are allowed only with some arguments.
_ARGUMENT_CHECKS = {
  'clone': _compare_bits(0, _CLONE_NAMESPACES, _REFUSE | errno.EPERM, _ALLOW),
  'socketpair': _only(0, [_AF_UNIX]),
  # These have the kernel send signals to any process.
  'ioctl': _none_of(1, [_FIOSETOWN, _SIOCSPGRP]),
  'fcntl': _only(1, list(_FCNTL)),
  'prctl': _only(
    0, [_PR_SET_NAME, _PR_GET_NAME, kernel.PR_SET_PDEATHSIG, _PR_SET_SECCOMP]
  ),
  'prlimit64': _only(0, [0]),
}


def _packed(program: list[Instruction]) -> _Program:
  array = (_Filter * len(program))(*program)
  return _Program(len(program), array)
