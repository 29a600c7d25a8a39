"""The process of one program: loads it and calls it, one request at a time.

It holds no test and no expected value, and receives a call only after the
answer to the one before has been read. It answers with values and never with
verdicts, so whatever the program does to this code, it can only change the
values that it returns itself.

Requests, with their number `n`:

  {'n', 'code': program, 'setup': statements, 'output_bytes': int or None}
  {'n', 'run': statements, 'names': {name: encoded value}}   names stay bound
  {'n', 'value_of': expression, 'root', 'names': {...}}      names are not
  {'n', 'call': function, 'root', 'args': [...], 'kwargs': {...}}
  {'n', 'evaluate': expression, 'root'}

`root` is a name that the program must have defined: a builtin does not count.
It may be None for `evaluate`.

Answers: {'n', 'value'}, {'n', 'done'}, {'n', 'not_plain': what it was} or
{'n', 'error': [status, exception class, text, where]}. After a request with
`output_bytes`, each answer also has the fields of `output.Recorder.take`, if
there was any output.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import types
from typing import Any, NoReturn

from promptrl_jax.execution import codec, kernel, tester, wire
from promptrl_jax.execution import layers as layers_lib
from promptrl_jax.execution import limits as limits_lib
from promptrl_jax.execution import output as output_lib

_CHANNEL = 3
_MODULE = 'candidate'
_MAX_TEXT = 200


def run(
  role: str,
  descriptor: int,
  folder: str,
  sandbox: layers_lib.Sandbox,
  limits: limits_lib.Prepared,
  answer_bytes: int,
) -> NoReturn:
  """Confines this freshly forked process and serves; never returns.

  The stream socket `descriptor` to the judge is the only connection to the
  outside; the role `tester` is that of the process of a test (`tester.py`).
  """
  os.setsid()
  os.chdir(folder)
  limits_lib.apply(limits)
  sandbox.enter()
  kernel.die_with_parent(sandbox.zygote)  # A change of user resets this.
  # Not earlier: `_CHANNEL` may be the descriptor of the Landlock ruleset.
  os.dup2(descriptor, _CHANNEL)
  os.closerange(_CHANNEL + 1, sandbox.highest)
  channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, _CHANNEL)
  sandbox.close()
  channel.sendall(wire.HELLO)
  gc.enable()
  if role == 'tester':
    tester.run(channel, answer_bytes)
  _serve(channel, answer_bytes)


def _serve(channel: socket.socket, answer_bytes: int) -> NoReturn:
  module = types.ModuleType(_MODULE)
  sys.modules[_MODULE] = module  # Where dataclasses look for their module.
  records = False
  while True:
    request = wire.receive(channel)
    if request.get('output_bytes'):
      output_lib.RECORDER.start(request['output_bytes'])
      records = True
    answer = {'n': request['n'], **_answer(request, module.__dict__)}
    output = output_lib.RECORDER.take() if records else {}
    packed = wire.pack(answer | output)
    if len(packed) > answer_bytes:
      what = f'data of more than {answer_bytes // 1024} KiB'
      packed = wire.pack({'n': request['n'], 'not_plain': what, **output})
    channel.sendall(packed)


def _answer(request: Any, names: dict[str, Any]) -> dict[str, Any]:
  where = ['load']
  try:
    return _carry_out(request, names, where)
  except codec.NotPlainError as error:
    return {'not_plain': str(error)}
  except MemoryError:
    out_of_memory = True
  except BaseException as error:  # Also SystemExit and KeyboardInterrupt.
    out_of_memory = False
    status = where[0] if where[0] == 'syntax_error' else 'error'
    answer = [status, *_describe(error), where[0]]
  # Outside of the handler, because inside the traceback keeps the memory alive.
  if out_of_memory:
    limits_lib.use_memory_reserve()
    # The parser also raises MemoryError at brackets that nest too deeply.
    compiling = where[0] == 'syntax_error'
    status = where[0] if compiling else 'memory'
    text = 'too complex' if compiling else 'the memory limit was reached'
    answer = [status, 'MemoryError', text, where[0]]
  return {'error': answer}


def _carry_out(
  request: Any, names: dict[str, Any], where: list[str]
) -> dict[str, Any]:
  if 'code' in request:
    where[0] = 'syntax_error'
    program = compile(request['code'], '<program>', 'exec', dont_inherit=True)
    where[0] = 'program'
    exec(program, names)
    where[0] = 'setup'
    if request['setup']:
      exec(_compile(request['setup'], 'exec'), names)
    return {'done': True}
  where[0] = 'test'
  if 'run' in request:
    names.update(_decode_all(request['names']))
    exec(_compile(request['run'], 'exec'), names)
    return {'done': True}
  if request['root'] is not None and request['root'] not in names:
    raise NameError(f'name {request["root"]!r} is not defined')
  if 'call' in request:
    function = eval(_compile(request['call'], 'eval'), names)
    args = [codec.decode(arg) for arg in request['args']]
    value = function(*args, **_decode_all(request['kwargs']))
    return {'value': codec.encode(value)}
  if 'evaluate' in request:
    value = eval(_compile(request['evaluate'].strip(), 'eval'), names)
    return {'value': codec.encode(value)}
  # Bound as parameters, the names do not replace globals of the program.
  bound = _decode_all(request['names'])
  source = f'lambda {", ".join(bound)}: ({request["value_of"]})'
  value = eval(_compile(source, 'eval'), names)(**bound)
  return {'value': codec.encode(value)}


def _compile(source: str, mode: str) -> types.CodeType:
  return compile(source, '<test>', mode, dont_inherit=True)


def _decode_all(names: dict[str, Any]) -> dict[str, Any]:
  return {name: codec.decode(value) for name, value in names.items()}


def _describe(error: BaseException) -> tuple[str, str]:
  try:
    text = str(error)
  except BaseException:  # The program wrote __str__.
    text = ''
  return type(error).__name__[:_MAX_TEXT], text[:_MAX_TEXT]
