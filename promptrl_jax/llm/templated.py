"""A backend that answers from templates and does what its prompt asks for.

It is offline, instant and no language model: it looks for words such as
"bulleted", "two sentences", "formal" or "example" in the system prompt and
builds an answer of that form about the topic of the question. Loops that learn
how to ask can be tried and tested on it, since every section of a prompt shows
in what a person reads.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence

from promptrl_jax.llm.backend import Completion, Request
from promptrl_jax.tasks import queries

DEFAULT_TEMPERATURE = 0.0
_CONTENT = {
  'how_to': (
    'Begin with a small part of it and a clear goal',
    'Get the few tools that you need before you start',
    'Watch somebody who does it well, once',
    'Do the first try slowly and note what goes wrong',
    'Change one thing at a time',
    'Repeat what worked until it takes no thought',
    'Set a fixed hour of the week aside for it',
    'Compare the result with your goal and adjust',
    'Ask for an opinion when you no longer see mistakes',
  ),
  'explanation': (
    'It describes how a few simple parts work together',
    'The idea is older than its name',
    'Its effect grows when it is applied again and again',
    'It matters since small causes add up over time',
    'Most mistakes come from leaving one part out',
    'You can see it at work in daily life',
    'It is measured by what changes and how fast',
    'Experts disagree on details and not on the principle',
    'Once understood, it makes related ideas easy',
  ),
  'comparison': (
    'The first costs more effort and gives more control',
    'The second is quicker to learn',
    'They differ most where conditions change',
    'For small cases both do equally well',
    'The first scales better',
    'The second fails in plainer ways',
    'Many people use one for drafts and the other for the rest',
    'Prices and habits often decide between them',
    'Try both on the same case for a day',
  ),
  'opinion': (
    'It repays the first hours well',
    'Later gains come more slowly',
    'It suits those who enjoy the details',
    'A friend who does it makes it easier',
    'It is a poor choice when time is very short',
    'Its cost is easy to overlook',
    'What you learn carries over to other things',
    'A month is enough to find out',
    'Few who tried it regret that',
  ),
  'code': (
    'The program reads its input once',
    'It keeps what it has seen in a dictionary',
    'Each step does one thing',
    'Errors are reported with the line that caused them',
    'It needs no library beyond the standard one',
    'The running time grows linearly',
    'Empty input gives an empty result',
    'A test with three lines shows that it works',
    'Names say what values mean',
  ),
}
_FIRST_WORDS = (
  ('code', r'^(write a function|i need a script|give me code)\b'),
  ('how_to', r'^(how do i|what is the best way|i want to)\b'),
  ('comparison', r'\b(which is better|compare|difference between)\b'),
  ('opinion', r'\b(worth|what do you think|should i)\b'),
)
_OPENINGS = {
  'plain': '',
  'formal': 'Regarding {topic}, the following points apply.',
  'warm': 'I am glad that you ask about {topic}, and happy to help.',
  'enthusiastic': 'What a great question about {topic}!',
}
_CLOSINGS = {
  'plain': '',
  'formal': 'Furthermore, the result depends on careful preparation.',
  'warm': 'Take your time, you will do well.',
  'enthusiastic': 'You are going to love it!',
}
_TONES = (
  ('formal', r'\bformal'),
  ('warm', r'\b(warm|friendly)'),
  ('enthusiastic', r'\benthusias'),
)
_EXCEPTIONS = (
  'An exception is a case with unusual conditions',
  'None of this holds unless the basics are in place',
)
_ROLES = {
  'teacher': 'A pupil once found this hard and got it in a week.',
  'engineer': 'In practice the simplest design that works is the best.',
  'friend': 'I read about this only last week.',
}


class TemplatedBackend:
  """Answers every request by `answer`; see the module."""

  name = 'templated'

  def complete(self, requests: Sequence[Request]) -> list[Completion]:
    completions = []
    for request in requests:
      system, query = _read(request)
      if request.temperature > 0:
        rng = random.Random(f'{request.seed} {system} {query}')
        text = answer(system, query, rng)
      else:
        text = _first_answer(system, query)
      words = text.split(' ')
      cut = len(words) > request.max_tokens
      completions.append(
        Completion(
          ' '.join(words[: request.max_tokens]),
          sum(self.count_tokens(m.content) for m in request.messages),
          min(len(words), request.max_tokens),
          'length' if cut else 'stop',
        )
      )
    return completions

  def fits(self, request: Request) -> bool:
    del request  # It reads a prompt of any length.
    return True

  def count_tokens(self, text: str) -> int:
    """Words, as it knows no others."""
    return len(text.split())

  def close(self) -> None:
    pass


def answer(system: str, query: str, rng: random.Random | None = None) -> str:
  """An answer of the form that the system prompt asks for.

  Args:
    system: the prompt; only words that it knows have an effect.
    query: a question as in `tasks.queries`, or any other text.
    rng: chooses among the sentences; None: the first ones.
  """
  asked = system.lower()
  says = lambda pattern: re.search(pattern, asked) is not None
  kind, topic = _kind(query), _topic(query)
  tone = next((tone for tone, cue in _TONES if says(cue)), 'plain')
  count = 4
  if says(r'\btwo sentences|\bbrief|\bconcise|\bshort'):
    count = 2
  elif says(r'\bfive sentences'):
    count = 5
  elif says(r'\bthorough|\bin detail|\bdetailed'):
    count = 9
  points = list(_CONTENT[kind])
  if rng is not None:
    rng.shuffle(points)
  points = points[:count]
  if says(r'\bexception|\bcaveat'):
    points += _EXCEPTIONS
  if says(r'\bhow sure|\bcertain|\bconfiden'):
    points[0] = f'This is probably right: {_lower(points[0])}'
    points.append('I am fairly sure of it')
  if says(r'\bbullet'):
    body = '\n'.join(f'- {point}.' for point in points)
  elif says(r'\bnumbered|\bsteps\b'):
    body = '\n'.join(f'{i}. {p}.' for i, p in enumerate(points, 1))
  else:
    body = ' '.join(f'{point}.' for point in points)
  role = next((line for who, line in _ROLES.items() if who in asked), '')
  parts = [
    f'In short: {_lower(points[0])}.' if says(r'\bsummary|\bsummari') else '',
    _OPENINGS[tone].format(topic=topic),
    body,
    role if count > 4 else '',
    f'For example, take {topic} on a quiet day.' if says(r'\bexample') else '',
    _snippet(topic) if says(r'\bcode\b|\bsnippet') else '',
    _CLOSINGS[tone],
    'What would you like to know next?' if says(r'\bquestion to') else '',
  ]
  return '\n\n'.join(part for part in parts if part)


@functools.lru_cache(maxsize=1 << 16)
def _first_answer(system: str, query: str) -> str:
  """The answer without any draw, which evolution asks for again and again."""
  return answer(system, query)


def _read(request: Request) -> tuple[str, str]:
  """System prompt and question of a request."""
  system = '\n'.join(m.content for m in request.messages if m.role == 'system')
  rest = [m.content for m in request.messages if m.role != 'system']
  return system, rest[-1] if rest else ''


def _kind(query: str) -> str:
  asked = query.lower()
  for kind, pattern in _FIRST_WORDS:
    if re.search(pattern, asked):
      return kind
  return 'explanation'


def _topic(query: str) -> str:
  return _topics().get(query, query.rstrip('?.!'))


@functools.cache
def _topics() -> dict[str, str]:
  return {q.text: q.topic for s in queries.SPLITS for q in queries.load(s)}


def _snippet(topic: str) -> str:
  name = re.sub(r'\W+', '_', topic.lower()).strip('_')
  return f'```python\ndef {name}(data):\n  return sorted(set(data))\n```'


def _lower(text: str) -> str:
  return text[:1].lower() + text[1:]
