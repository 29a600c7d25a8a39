"""The judge's side of a candidate: sends requests, watches clocks, ends it."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from typing import Any

from promptrl_jax.execution import codec, kernel, scratch, wire
from promptrl_jax.execution import limits as limits_lib

_CHECK_S = 0.02  # Interval between two checks of the clocks.
_GREETING_S = 30.0
_CREDENTIALS = struct.Struct('3i')  # Process, user and group.


class LostError(Exception):
  """The candidate can no longer answer requests.

  Attributes:
    status: `timeout` or `crash`.
  """

  def __init__(self, status: str, message: str):
    super().__init__(message)
    self.status = status


class WorkerError(Exception):
  """The zygote or the trainer is gone, so the worker has to end."""


class Session:
  """The candidates of one program, one after the other, with one time budget.

  Requests and answers alternate and carry the same number. A candidate that
  sends anything else (early, twice, malformed, too long) is ended.

  Args:
    control, trainer: sockets; the trainer's is watched for its end.
    limits: of the program.
    role: `candidate`, or `tester` for processes that run tests.
    folder: directory whose size is checked; None if the kernel bounds it.

  Attributes:
    cpu_s: processor seconds of the candidates that have ended.
  """

  def __init__(
    self,
    control: socket.socket,
    trainer: socket.socket,
    limits: limits_lib.Limits,
    role: str = 'candidate',
    folder: str | None = None,
  ):
    self._role = role
    self._folder = folder
    self.cpu_s = 0.0
    self._control = control
    self._trainer = trainer
    self._limits = limits
    self._start = wire.dump({'start': role, 'limits': vars(limits)})
    self._longest = limits.answer_kb * 1024
    self._deadline = time.monotonic() + 2 * limits.wall_s
    self._channel: socket.socket | None = None
    self._pid = 0
    self._number = 0
    self._cpu_at_start = 0.0

  def begin(self) -> None:
    """Starts a candidate and the clock of its first request."""
    self._channel, theirs = socket.socketpair()
    self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    try:
      socket.send_fds(self._control, [self._start], [theirs.fileno()])
    except OSError as error:
      raise WorkerError('the zygote is gone') from error
    finally:
      theirs.close()
    self._pid = _greeting(self._channel)
    self._channel.setblocking(False)
    self._number = 0
    self._cpu_at_start = self._cpu()

  def end(self) -> tuple[int, float]:
    """Ends the candidate, if any; returns wait status and processor seconds."""
    if self._channel is None:
      return 0, 0.0
    try:
      self._control.send(wire.dump({'end': self._role}))
      reply = self._control.recv(256)
      if not reply:
        raise ConnectionError('the zygote closed its socket')
    except OSError as error:
      raise WorkerError('the zygote is gone') from error
    finally:
      # Not earlier: closing first would wake up a sleeping candidate.
      self._channel.close()
      self._channel = None
    status, cpu_s = wire.load(reply)
    self.cpu_s += cpu_s
    return status, cpu_s

  def is_alive(self) -> bool:
    return self._channel is not None

  def is_spent(self) -> bool:
    """Whether the time budget of the whole program is used up."""
    return (
      self.cpu_s + self._cpu() >= 2 * self._limits.cpu_s
      or time.monotonic() >= self._deadline
    )

  def start_clock(self) -> None:
    """Starts the clock of the next test or expression."""
    self._cpu_at_start = self._cpu()

  def ask(self, request: dict[str, Any]) -> dict[str, Any]:
    """Sends one request and waits for its answer.

    Raises:
      LostError: there is no answer, or it breaks the protocol.
      WorkerError: the zygote or the trainer is gone.
    """
    self._number += 1
    return self.answer(request)

  def answer(self, message: dict[str, Any]) -> dict[str, Any]:
    """Does the same under the number of the last request."""
    if self._channel is None:
      raise LostError('crash', 'its process has ended')
    self._send(self._channel, wire.pack({'n': self._number, **message}))
    body = self._receive(self._channel)
    self._check_cpu(self._cpu())
    self._check_files()
    try:
      answer = codec.loads(body)
    except codec.MalformedError as error:
      raise LostError('crash', f'malformed answer ({error})') from None
    if not isinstance(answer, dict) or answer.get('n') != self._number:
      raise LostError('crash', 'answer to something else')
    return answer

  def _send(self, channel: socket.socket, message: bytes) -> None:
    clocks = _Clocks()
    rest = memoryview(message)
    while True:
      try:
        if channel.recv(1, socket.MSG_PEEK):
          raise LostError('crash', 'its process sent what was not asked for')
        raise self._died()
      except BlockingIOError:
        pass
      except ConnectionError:
        raise self._died() from None
      try:
        rest = rest[channel.send(rest) :]
      except BlockingIOError:
        pass
      except ConnectionError:
        raise self._died() from None
      if not rest:
        return
      self._wait(channel, select.POLLIN | select.POLLOUT, clocks)

  def _receive(self, channel: socket.socket) -> bytearray:
    clocks = _Clocks()
    data = bytearray()
    size = wire.HEADER.size
    while len(data) < size:
      self._wait(channel, select.POLLIN, clocks)
      try:
        chunk = channel.recv(wire.CHUNK)
      except BlockingIOError:
        continue
      except ConnectionError:
        chunk = b''
      if not chunk:
        raise self._died()
      data += chunk
      if size == wire.HEADER.size and len(data) >= size:
        size += wire.HEADER.unpack(data[:size])[0]
        if size > self._longest:
          raise LostError('crash', 'its process sent too much')
    if len(data) > size:
      raise LostError('crash', 'its process sent what was not asked for')
    return data[wire.HEADER.size :]

  def _wait(self, channel: socket.socket, events: int, clocks: _Clocks) -> None:
    poller = select.poll()
    poller.register(channel, events)
    poller.register(self._trainer, select.POLLIN)
    ready = []
    while not ready:
      ready = poller.poll(1000 * _CHECK_S)
      if any(number == self._trainer.fileno() for number, _ in ready):
        raise WorkerError('the trainer is gone')  # It sends nothing meanwhile.
      if time.monotonic() >= clocks.next_check:
        self._check(clocks)

  def _check(self, clocks: _Clocks) -> None:
    now, cpu = time.monotonic(), self._cpu()
    clocks.next_check = now + _CHECK_S
    self._check_cpu(cpu)
    self._check_files()
    if now - clocks.asked > self._limits.wall_s or now > self._deadline:
      raise LostError('timeout', f'no answer in {now - clocks.asked:.1f} s')
    ended, waited = _scheduling(self._pid)
    if ended:
      raise self._died()
    if len(waited) > self._limits.processes:  # Root has no such limit.
      raise LostError('crash', f'more than {self._limits.processes} threads')
    if None in waited.values():
      return  # A kernel without it: only wall_s is left.
    clocks.add_idle(now - cpu, waited)
    if clocks.idle_s > self._limits.idle_s:
      raise LostError('timeout', f'idle for {self._limits.idle_s:g} s')

  def _check_cpu(self, cpu: float) -> None:
    limit = self._limits.cpu_s
    if cpu - self._cpu_at_start > limit:
      raise LostError('timeout', f'took more than {limit:g} CPU seconds')
    if self.cpu_s + cpu > 2 * limit:
      message = f'the program took more than {2 * limit:g} CPU seconds in all'
      raise LostError('timeout', message)

  def _check_files(self) -> None:
    if self._folder is not None and not scratch.is_small(self._folder):
      raise LostError('crash', 'its process wrote too many files')

  def _cpu(self) -> float:
    """Processor seconds of the current candidate."""
    return 0.0 if self._channel is None else kernel.cpu_s(self._pid)

  def _died(self) -> LostError:
    status, cpu_s = self.end()
    if os.WIFSIGNALED(status):
      number = os.WTERMSIG(status)
      if number == signal.SIGXCPU or cpu_s > 2 * self._limits.cpu_s:
        return LostError('timeout', f'took {cpu_s:.1f} CPU seconds')
      if number == signal.SIGKILL:  # Sent by the zygote, if it still ran.
        return LostError('crash', 'its process hung up or was killed')
      name = signal.strsignal(number) or f'signal {number}'
      return LostError('crash', f'its process was killed: {name}')
    code = os.WEXITSTATUS(status)
    return LostError('crash', f'its process ended with exit status {code}')


class _Clocks:
  """Readings of the clocks since a request was sent."""

  def __init__(self):
    self.asked = time.monotonic()
    self.next_check = self.asked + _CHECK_S
    self.idle_s = 0.0
    self._before: tuple[float, dict[str, Any]] | None = None

  def add_idle(self, not_run: float, waited: dict[str, Any]) -> None:
    """Adds time in which no thread ran or waited for a processor.

    `not_run` is wall time minus processor time, `waited` how long each thread
    has waited for a processor, all in seconds.
    """
    if self._before is not None:
      not_run_before, before = self._before
      idle = not_run - not_run_before
      idle -= sum(s - before.get(thread, 0.0) for thread, s in waited.items())
      # A longer time between two checks means that the judge itself had to
      # wait for a processor, perhaps while the answer was there already.
      self.idle_s += min(idle, 2 * _CHECK_S)
    self._before = not_run, waited


def layers_of(control: socket.socket) -> dict[str, Any]:
  """Receives the isolation layers of a fresh zygote's candidates."""
  try:
    return wire.load(control.recv(4096))
  except (OSError, ValueError) as error:
    raise WorkerError('the zygote did not start') from error


def _greeting(channel: socket.socket) -> int:
  """Waits until a candidate is ready; returns its process id.

  The kernel writes the id, as it is in the namespace of this process.
  """
  channel.settimeout(_GREETING_S)
  try:
    size = socket.CMSG_SPACE(_CREDENTIALS.size)
    hello, ancillary, _, _ = channel.recvmsg(len(wire.HELLO), size)
  except OSError as error:
    raise WorkerError('a candidate did not start') from error
  if hello != wire.HELLO or not ancillary:
    raise WorkerError('a candidate could not be confined')
  return _CREDENTIALS.unpack(ancillary[0][2])[0]


def _scheduling(pid: int) -> tuple[bool, dict[str, float | None]]:
  """Whether a process has ended, and seconds that its threads waited to run.

  They are None where the kernel does not count them.
  """
  try:
    with open(f'/proc/{pid}/stat', 'rb') as file:
      state = file.read().rpartition(b')')[2].split()[0]
    threads = os.listdir(f'/proc/{pid}/task')
  except OSError:
    return False, {'': None}
  if state in (b'Z', b'X'):
    return True, {}
  return False, {thread: _waited(pid, thread) for thread in threads}


def _waited(pid: int, thread: str) -> float | None:
  folder = f'/proc/{pid}/task/{thread}'
  try:
    with open(f'{folder}/schedstat', 'rb') as file:
      return int(file.read().split()[1]) * 1e-9
  except (OSError, IndexError):
    return None if os.path.exists(folder) else 0.0  # It ended meanwhile.
