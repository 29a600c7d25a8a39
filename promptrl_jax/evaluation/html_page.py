"""Puts a page together that is one file: markup, styles, scripts and data.

Such a page needs no server, no network and no build step. Its Content-Security-
Policy forbids every connection and every script but its own, and the scripts
insert all data as text, so that what a model wrote is never read as HTML.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import pathlib
import string
from collections.abc import Sequence
from typing import Any

ASSETS = pathlib.Path(__file__).parent / 'html'


def render(
  template: str,
  title: str,
  *,
  styles: Sequence[str],
  scripts: Sequence[str],
  data: Any,
  chunks: Sequence[str] = (),
) -> str:
  """Returns the text of a page.

  Args:
    template: of the files in `html`, with places for what follows. All have
      the same `head.html`, which holds the policy.
    title: of the page, as text.
    styles, scripts: further files there, without their endings. The scripts
      become one module, in which each uses those before it.
    data: JSON data without numbers that are not finite.
    chunks: further elements.

  Raises:
    ValueError: a number is not finite.
  """
  script = '\n'.join(_asset(f'{name}.js') for name in scripts)
  style = '\n'.join(_asset(f'{name}.css') for name in styles)
  encoded = json.dumps(data, allow_nan=False, separators=(',', ':'))
  title = html.escape(title)
  head = string.Template(_asset('head.html')).substitute(
    title=title,
    script_hash=_hash(script),
    style_hash=_hash(style),
    style=style,
  )
  return string.Template(_asset(template)).substitute(
    head=head,
    title=title,
    script=script,
    # A JSON string may write any character as an escape, and ends no element.
    data=encoded.replace('<', '\\u003c'),
    chunks='\n'.join(chunks),
  )


def _asset(name: str) -> str:
  return (ASSETS / name).read_text(encoding='utf-8')


def _hash(text: str) -> str:
  """The source expression that allows one inline element."""
  digest = hashlib.sha256(text.encode()).digest()
  return f'sha256-{base64.b64encode(digest).decode()}'
