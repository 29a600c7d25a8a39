"""Messages on a stream socket: four bytes of length, then UTF-8 JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct('>I')
HELLO = b'.'  # A candidate is ready: its limits and layers hold.


def pack(message: Any) -> bytes:
  """A message with its header."""
  body = json.dumps(message, separators=(',', ':')).encode()
  return HEADER.pack(len(body)) + body


def send(channel: socket.socket, message: Any) -> None:
  """Sends one message; blocks."""
  channel.sendall(pack(message))


def receive(channel: socket.socket) -> Any:
  """Receives one message from a trusted peer; blocks.

  Raises:
    EOFError: the other side is gone.
  """
  (size,) = HEADER.unpack(_read(channel, HEADER.size))
  return json.loads(_read(channel, size))


def _read(channel: socket.socket, size: int) -> bytearray:
  data = bytearray()
  while len(data) < size:
    chunk = channel.recv(min(size - len(data), 1 << 20))
    if not chunk:
      raise EOFError('the other side closed the channel')
    data += chunk
  return data
