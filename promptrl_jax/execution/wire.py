"""Messages on a stream socket: four bytes of length, then UTF-8 JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct('>I')
# A first one so large that malloc maps it costs more than the message.
CHUNK = 1 << 14
HELLO = b'.'  # A candidate is ready: its limits and layers hold.


_ENCODER = json.JSONEncoder(separators=(',', ':'))
_DECODER = json.JSONDecoder()


def dump(message: Any) -> bytes:
  """A message without a header, for sockets that keep messages apart."""
  return _ENCODER.encode(message).encode()


def load(data: bytes | bytearray) -> Any:
  """What a trusted peer has dumped."""
  return _DECODER.decode(data.decode())


def pack(message: Any) -> bytes:
  """A message with its header."""
  body = dump(message)
  return HEADER.pack(len(body)) + body


def send(channel: socket.socket, message: Any) -> None:
  """Sends one message; blocks."""
  channel.sendall(pack(message))


def receive(channel: socket.socket) -> Any:
  """Receives one message from a trusted peer; blocks.

  The peer sends no more before it has an answer, so nothing follows it.

  Raises:
    EOFError: the other side is gone.
  """
  data = bytearray()
  size = HEADER.size
  while len(data) < size:
    chunk = channel.recv(CHUNK)
    if not chunk:
      raise EOFError('the other side closed the channel')
    data += chunk
    if size == HEADER.size and len(data) >= size:
      size += HEADER.unpack_from(data)[0]
  return load(data[HEADER.size :])
