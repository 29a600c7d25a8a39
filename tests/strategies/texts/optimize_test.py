"""A better text for any metric, in one call."""

import functools
import json
import math
import re

import pytest
import yaml

import promptrl_jax as pr
from promptrl_jax.llm.backend import BackendError, Completion
from promptrl_jax.prompts import export
from promptrl_jax.strategies.texts import evolve
from promptrl_jax.strategies.texts.proposer import ProposerConfig
from promptrl_jax.strategies.texts.requests import (
  EvaluationError,
  NothingUsableError,
)
from promptrl_jax.testing.scripted import ScriptedBackend
from tests.variants import mostly_slow

WORDS = ('apple', 'pear', 'plum', 'fig', 'lime', 'date', 'kiwi', 'nut')


def has(text, word):
  """A metric: does the text name the word? The feedback says which."""
  return (1.0, '') if word in text else (0.0, f'name {word}')


def reader(request):
  """A model that does what the feedback says, and merges by joining."""
  content = request.messages[-1].content
  texts = re.findall(r'<text>\n(.*?)\n</text>', content)
  wanted = re.findall(r'name (\w+)', content)
  if not texts:  # a rewrite: adds a word that its seed says
    (text,) = re.findall(r'Instruction: (.*)', content)
    return f'{text} {WORDS[request.seed % len(WORDS)]}'
  words = dict.fromkeys(' '.join([*texts, *wanted]).split())
  return f'I see.\n<text>\n{" ".join(words)}\n</text>'


def run(strategy='gepa', budget=120, model=None, metric=has, **options):
  return pr.optimize(
    'Name',
    metric,
    budget,
    strategy,
    model=model or ScriptedBackend(reader),
    examples=WORDS,
    **options,
  )


@pytest.mark.parametrize('strategy', ['gepa', 'best_of_n', 'evolve'])
def test_every_strategy_finds_a_better_text(strategy):
  result = run(strategy)
  assert result.start == 'Name'
  assert (result.start_score, result.start_held_out) == (0.0, 0.0)
  assert result.score > 0 and result.score == max(
    candidate.mean for candidate in result.candidates
  )
  assert result.calls <= 120
  search = [s for s in result.history if s.candidate is not None]
  assert [s.candidate for s in search] == list(range(len(result.candidates)))
  for place, candidate in enumerate(result.candidates):  # a forest
    assert all(parent < place for parent in candidate.parents)
    assert place == 0 or candidate.parents
  assert f'search examples 0.000 -> {result.score:.3f}' in str(result)
  assert f'held out 0.000 -> {result.held_out:.3f}' in str(result)
  best = result.leaderboard(2)
  assert best[0][1].text == result.text and best[0][1].mean >= best[1][1].mean
  assert all(result.candidates[place] is found for place, found in best)
  with pytest.raises(AttributeError):
    result.text = ''


def test_the_leaderboard_has_the_best_twenty_candidates():
  words = lambda request: ' '.join(WORDS[: request.seed % 9])
  model = ScriptedBackend(lambda request: f'{request.seed} {words(request)}')
  result = run('best_of_n', 200, model)
  means = sorted((c.mean for c in result.candidates), reverse=True)
  assert len(means) > 20 and len(set(means[:20])) > 1
  assert [found.mean for _, found in result.leaderboard()] == means[:20]


def test_reflection_learns_what_rewrites_have_to_guess():
  reflective, blind = run('gepa'), run('best_of_n')
  assert reflective.score == 1.0 > blind.score
  # It read of the search examples alone, so the others stay unnamed.
  assert reflective.held_out == 0.0


def test_nothing_is_chosen_on_what_is_held_out():
  asked = []

  def metric(text, word):
    asked.append((text, word))
    return has(text, word)

  result = run(metric=metric)
  held_out = {word for text, word in asked[-4:]}
  assert len(held_out) == 4
  first = [i for i, (_, word) in enumerate(asked) if word in held_out]
  assert first == list(range(len(asked) - 8, len(asked)))
  assert {text for text, _ in asked[-8:]} == {'Name', result.text}
  assert len(asked) == len(set(asked))  # no text is scored twice on one


def test_the_best_mean_of_a_generation_never_falls(monkeypatch):
  draw, best = evolve._parents, []

  def watched(pool, population, config, rng):
    best.append(max(pool.candidates[k].mean for k in population))
    return draw(pool, population, config, rng)

  monkeypatch.setattr(evolve, '_parents', watched)
  result = run('evolve', 200, population=3)
  assert {'rewrite', 'merge'} <= {step.kind for step in result.history}
  assert best == sorted(best) and len(set(best)) > 2
  assert result.score >= best[-1]


@pytest.mark.parametrize('strategy', ['gepa', 'best_of_n', 'evolve'])
def test_a_seed_decides_everything(strategy):
  assert run(strategy, seed=3) == run(strategy, seed=3)
  histories = {run(strategy, seed=seed).history for seed in range(4)}
  assert len(histories) > 1


def test_a_text_without_examples_is_scored_as_a_whole():
  result = pr.optimize(
    'Name',
    lambda text: (len(set(text.split())), 'name fig'),
    12,
    model=ScriptedBackend(reader),
    calls_per_evaluation=0,
  )
  assert result.text == 'Name fig'
  assert (result.score, result.held_out) == (2.0, None)
  assert 'none held out' in str(result)


@pytest.mark.parametrize('strategy', ['gepa', 'best_of_n', 'evolve'])
@pytest.mark.parametrize('interrupted_at', mostly_slow([0, 1, 3, 7], [7]))
def test_an_interrupted_search_pays_nothing_twice(
  strategy, interrupted_at, tmp_path
):
  whole = run(strategy, journal=tmp_path / 'whole.json')
  asked = []

  def metric(text, word):
    asked.append((text, word))
    return has(text, word)

  def dies(request):
    if len(model.batches) > interrupted_at:
      raise BackendError('the server is down')
    return reader(request)

  model, path = ScriptedBackend(dies), tmp_path / 'journal.json'
  with pytest.raises(BackendError, match='down'):
    run(strategy, model=model, metric=metric, journal=path)
  paid = model.batches[:-1]
  model = ScriptedBackend(reader)
  assert run(strategy, model=model, metric=metric, journal=path) == whole
  assert len(asked) == len(set(asked))
  requests = [r for batch in [*paid, *model.batches] for r in batch]
  assert len(requests) == len(set(requests))
  again = ScriptedBackend(reader)
  assert run(strategy, model=again, journal=path) == whole
  assert again.batches == []


def test_a_larger_budget_goes_on_with_a_journal(tmp_path):
  path = tmp_path / 'journal.json'
  small = run('best_of_n', 60, journal=path, batch=1)
  model = ScriptedBackend(reader)
  large = run('best_of_n', 120, model=model, journal=path, batch=1)
  assert large == run('best_of_n', 120, batch=1)
  assert large.history[: len(small.history)] == small.history


def test_a_journal_of_something_else_is_refused(tmp_path):
  path = tmp_path / 'journal.json'
  run(journal=path)
  with pytest.raises(ValueError, match='another search: proposer differ'):
    run(journal=path, proposer=ProposerConfig(temperature=0.5))
  path.write_text('[]')
  with pytest.raises(ValueError, match='is no journal'):
    run(journal=path)


# --- Budgets ------------------------------------------------------------------


def test_a_budget_that_buys_too_few_says_how_many_it_buys():
  # Four to search on and four held out: 4 for the start, 8 at the end, and 5
  # for each candidate.
  with pytest.raises(ValueError, match=r'buys 2 cand.*at least 27 .* for 3'):
    run(budget=26)
  assert run(budget=26, allow_few=True).calls <= 26
  assert run(budget=27).calls <= 27
  with pytest.raises(ValueError, match='buys 0') as error:
    run(budget=16, allow_few=True)
  assert 'allow_few' not in str(error.value)


@pytest.mark.parametrize('strategy', ['gepa', 'best_of_n', 'evolve'])
@pytest.mark.parametrize('each', mostly_slow([0, 1, 3], [1]))
def test_no_budget_is_exceeded(strategy, each):
  for budget in range(90, 110):
    model, scored = ScriptedBackend(reader), []
    metric = lambda text, word, scored=scored: (
      scored.append(0) or has(text, word)
    )
    result = run(strategy, budget, model, metric, calls_per_evaluation=each)
    replies = sum(len(batch) for batch in model.batches)
    assert result.calls == replies + each * len(scored) <= budget


# --- Bad input ----------------------------------------------------------------


@pytest.mark.parametrize(
  ('value', 'reason'),
  [
    (math.nan, 'returned nan'),
    ('high', 'ValueError: could not convert'),
    (None, 'TypeError'),
  ],
)
def test_a_start_text_without_a_score_ends_the_search(value, reason):
  with pytest.raises(EvaluationError, match=f"'Name'.*{reason}"):
    run(metric=lambda text, word: value)


def test_a_metric_that_raises_for_one_candidate_is_not_the_end():
  def metric(text, word):
    if text.split()[-1] == bad:
      raise ZeroDivisionError('of this text')
    return has(text, word)

  bad = ''
  bad = run('best_of_n').candidates[1].text.split()[-1]
  result = run('best_of_n', metric=metric)
  failed = [s for s in result.history if 'ZeroDivisionError' in s.why]
  assert failed and all(s.candidate is None for s in failed)
  assert result.score > 0


def test_a_metric_that_fails_for_all_candidates_is_no_fault_of_theirs():
  def metric(text, word):
    if text != 'Name':
      raise OSError('connection refused')
    return 0.0

  with pytest.raises(EvaluationError, match='3 texts in a row.*refused'):
    run('best_of_n', metric=metric)


def test_a_system_that_fails_is_not_a_score():
  def metric(text, word):
    raise BackendError('down')

  with pytest.raises(BackendError):
    run(metric=metric)


def test_a_best_text_that_fails_where_it_is_measured_gives_way_to_the_next():
  best = run('best_of_n').text
  seen = []

  def metric(text, word):
    seen.append(text)
    # The search scores it on four examples, the fifth is held out.
    if text == best and seen.count(text) > 4:
      return math.nan
    return has(text, word)

  result = run('best_of_n', metric=metric)
  assert result.text != best and result.held_out is not None
  (step,) = [s for s in result.history if s.kind == 'held out']
  assert step.text == best and 'nan' in step.why


@pytest.mark.parametrize(
  ('reply', 'reason'),
  [
    ('', 'empty'),
    ('<text>\n\n</text>', 'empty'),
    ('Name', 'a text that was there before'),
    ('A system is steered by the text below, and', 'repetition of the request'),
  ],
)
def test_a_model_that_answers_nothing_usable_is_named(reply, reason):
  with pytest.raises(NothingUsableError, match=f'10 replies.*{reason}'):
    run(model=ScriptedBackend(lambda request: reply))


def test_a_reply_that_was_cut_off_is_refused():
  class Cut(ScriptedBackend):
    def complete(self, requests):
      return [Completion('a long', 1, 1, 'length') for _ in requests]

  with pytest.raises(NothingUsableError, match='limit of 512 tokens'):
    run(model=Cut(reader))


def test_a_model_that_repeats_itself_ends_the_search():
  result = run('best_of_n', 400, ScriptedBackend(lambda request: 'Name fig'))
  assert 'replies in a row are not usable' in result.ended
  assert len(result.candidates) == 2


def test_cases_that_the_model_has_no_room_for_are_left_out():
  model = ScriptedBackend(reader, prompt_limit=125)
  run(model=model, budget=40, minibatch=4)
  shown = [prompt.count('# Input') for prompt in model.prompts]
  assert min(shown) >= 1 and max(shown) < 4
  model = ScriptedBackend(reader, prompt_limit=20)
  with pytest.raises(NothingUsableError, match='too long for the model'):
    run(model=model)
  assert not any(model.batches)


@pytest.mark.parametrize(
  ('options', 'reason'),
  [
    ({'strategy': 'anneal'}, 'gepa, best_of_n, evolve'),
    ({'minibatches': 3}, 'gepa has minibatch, proposals, merges'),
    ({'minibatch': 0}, 'minibatch=0'),
    ({'held_out': 1.0}, 'held_out=1.0'),
    ({'held_out': 0.99}, 'none would be left'),
    ({'calls_per_evaluation': -1}, 'calls_per_evaluation=-1'),
  ],
)
def test_bad_arguments_are_refused_before_any_call(options, reason):
  model = ScriptedBackend(reader)
  with pytest.raises(ValueError, match=re.escape(reason)):
    run(model=model, **options)
  assert model.batches == []


def test_examples_are_shown_as_they_are_or_as_json():
  model = ScriptedBackend(reader)
  pr.optimize(
    'Name',
    lambda text, example: (0.0, 'name fig'),
    40,
    model=model,
    examples=[{'word': 'é', 'n': i} for i in range(4)],
  )
  shown = re.findall(r'# Input 1\n(.*)', model.prompts[0])
  assert json.loads(shown[0])['word'] == 'é' and 'é' in shown[0]


def ask(text, word):
  """The request with which a metric asks a model."""
  return (pr.Message('system', text), pr.Message('user', f'{{{word}}}\n'))


def test_the_best_text_is_exported_as_the_metric_sent_it(tmp_path):
  asked = ScriptedBackend(lambda request: request.messages[0].content)

  def metric(text, word):
    (reply,) = asked.complete([pr.Request(ask(text, word))])
    return has(reply.text, word)

  result = run(metric=metric)
  messages = functools.partial(ask, word=export.place('word'))
  (path,) = result.export(tmp_path, 'openai', messages)
  written = json.loads(path.read_bytes())
  sent = [
    [{'role': m.role, 'content': m.content} for m in batch[0].messages]
    for batch in asked.batches
  ]
  for word in WORDS:
    filled = [
      m | {'content': m['content'].replace('{word}', word)} for m in written
    ]
    assert filled in sent
  assert written[0]['content'] == result.text
  (path,) = result.export(tmp_path / 'foo', 'promptfoo', messages)
  content = yaml.safe_load(path.read_text())
  raw = json.loads(content['prompts'][0]['raw'])
  assert raw[0]['content'] == result.text and '{{word}}' in raw[1]['content']
  assert content['tests'] == [{'vars': {'word': ''}}]
  # Without messages, the text alone.
  (path,) = result.export(tmp_path)
  assert path.read_bytes() == result.text.encode()
  assert path.name == 'prompt.txt'
