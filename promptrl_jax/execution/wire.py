"""Messages on a stream socket: four bytes of length, then UTF-8 JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct('>I')
# Larger receive buffers would be mapped by malloc, which costs more time than
# the message itself.
CHUNK = 1 << 14
HELLO = b'.'  # Sent by a candidate once its limits and layers are in place.


_ENCODER = json.JSONEncoder(separators=(',', ':'))
_DECODER = json.JSONDecoder()


def dump(message: Any) -> bytes:
  """Encodes a message without a header, for sockets that send packets."""
  return _ENCODER.encode(message).encode()


def load(data: bytes | bytearray) -> Any:
  """Decodes a message that a trusted peer has written with `dump`."""
  return _DECODER.decode(data.decode())


def pack(message: Any) -> bytes:
  """Encodes a message with its header."""
  body = dump(message)
  return HEADER.pack(len(body)) + body


def send(channel: socket.socket, message: Any) -> None:
  """Sends one message; blocks."""
  channel.sendall(pack(message))


def receive(channel: socket.socket) -> Any:
  """Receives one message from a trusted peer; blocks.

  Nothing follows the message, because the peer waits for an answer to it.

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
