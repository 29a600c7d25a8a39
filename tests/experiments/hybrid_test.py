"""The three-phase loop as a command."""

import json

import pytest

from tests.experiments import commands

METHODS = "--config.methods=('random','gpro_evolution')"


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  folder = tmp_path_factory.mktemp('hybrid')
  result = run(folder)
  assert result.returncode == 0, result.stderr[-2000:]
  assert '| gpro_evolution |' in result.stdout
  return folder


def run(folder, *flags):
  return commands.run(
    'experiments.hybrid',
    '--config=configs/hybrid.py:smoke',
    f'--workdir={folder}',
    '--config.queries=30',
    METHODS,
    *flags,
  )


def test_it_leaves_tables_curves_and_prompts(workdir):
  results = json.loads((workdir / 'results.json').read_text())
  assert results['methods'].keys() == {'random', 'gpro_evolution'}
  for name in ('regret', 'satisfaction', 'diversity', 'fitness'):
    assert (workdir / f'{name}.png').stat().st_size > 5000
  evolution = results['evolution']
  assert evolution['random']['generations'] == []
  last = evolution['gpro_evolution']['generations'][-1]
  assert last['generation'] == 3 and last['variance'] > 0
  assert last.keys() > {'best', 'mean', 'jaccard', 'embedding', 'slope'}
  assert '| gpro_evolution | 3 |' in (workdir / 'results.md').read_text()
  curves = (workdir / 'curves' / 'gpro_evolution_0' / 'metrics.jsonl').open()
  rows = [json.loads(line) for line in curves]
  assert [row['step'] for row in rows] == [*range(1, 31)]
  steps = [r['step'] for r in rows if 'eval/generation_slope' in r]
  assert steps == [20, 25, 30]
  prompts = json.loads((workdir / 'prompts.json').read_text())
  assert all(prompts['gpro_evolution'])
  assert 'You are' in (workdir / 'lineage.txt').read_text()
  assert (workdir / 'lineage.png').stat().st_size > 5000
  members = read_members(workdir / 'lineage.html')
  # The last method is that with a person of 30 questions.
  assert sum(member['shown'] for member in members) == 30
  assert sum(member['heard'] for member in members) == 30
  assert any(member['parents'] for member in members)


def read_members(path):
  data = path.read_text(encoding='utf-8').partition('id="report-data">')[2]
  return json.loads(data.partition('</script>')[0])['members']


@pytest.mark.slow
def test_an_interrupted_one_goes_on_to_the_same_results(workdir):
  before = (workdir / 'results.json').read_bytes()
  (workdir / 'runs' / 'gpro_evolution_1.json').unlink()
  (workdir / 'results.json').unlink()
  assert run(workdir).returncode == 0
  assert (workdir / 'results.json').read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize('step', [1, 3])
def test_one_that_was_killed_within_a_run_ends_with_the_same(
  workdir, tmp_path, step
):
  flags = (
    *('--config=configs/hybrid.py:smoke', f'--workdir={tmp_path}'),
    *('--config.queries=30', '--config.seeds=1'),
    *("--config.methods=('gpro_evolution',)", '--config.checkpoint_every=1'),
  )
  saved = tmp_path / 'runs' / 'gpro_evolution_0' / f'{step}'
  commands.kill_when(saved.is_dir, 'experiments.hybrid', *flags)
  assert saved.parent.is_dir()
  assert commands.run('experiments.hybrid', *flags).returncode == 0
  mine = json.loads((tmp_path / 'runs' / 'gpro_evolution_0.json').read_text())
  theirs = (workdir / 'runs' / 'gpro_evolution_0.json').read_text()
  assert mine == json.loads(theirs)
  assert not saved.parent.exists()


@pytest.mark.slow
def test_all_terms_or_the_legacy_ones_are_learned_from(workdir, tmp_path):
  runs = []
  # And what is below `refine_below` in the end is dropped, but for the best.
  for name, lowest in (('hybrid', 0.0), ('hybrid_legacy', 1.0)):
    result = run(
      tmp_path / name,
      '--config.seeds=1',
      f'--config.reward={name}',
      f'--config.loop.refine_below={lowest}',
      "--config.reward_options=(('critic', 0.5),)",
    )
    assert result.returncode == 0, result.stderr[-2000:]
    path = tmp_path / name / 'runs' / 'gpro_evolution_0.json'
    one = json.loads(path.read_text())
    runs.append(one['satisfaction'])
    assert (len(one['prompts']) == 1) == (lowest == 1.0)
  rated = json.loads((workdir / 'runs' / 'gpro_evolution_0.json').read_text())
  assert rated['satisfaction'] != runs[0] != runs[1] != rated['satisfaction']


@pytest.mark.slow
def test_the_phase_refinement_drops_what_nobody_needs(tmp_path):
  result = commands.run(
    'experiments.hybrid',
    *('--config=configs/hybrid.py:smoke', f'--workdir={tmp_path}'),
    *('--config.queries=30', '--config.seeds=1'),
    "--config.methods=('gpro_evolution',)",
    *('--config.loop.main_queries=21', '--config.loop.refine_below=1.0'),
    '--config.gpro.temperatures=(0.3, 1.0)',
  )
  assert result.returncode == 0, result.stderr[-2000:]
  path = tmp_path / 'runs' / 'gpro_evolution_0.json'
  one = json.loads(path.read_text())
  # One prompt is left, as no fitness is 1, and differs from nobody.
  assert min(one['diversity'][:21]) > 0 == max(one['diversity'][21:])
  assert [row['queries'] for row in one['generations']] == [20]


@pytest.mark.slow
def test_a_simulated_person_is_learned(tmp_path):
  """Three people and 300 questions: what the table of docs/hybrid.md says."""
  result = commands.run(
    'experiments.hybrid',
    *('--config=configs/hybrid.py', f'--workdir={tmp_path}'),
    *('--config.seed=100', '--config.seeds=3', METHODS),
  )
  assert result.returncode == 0, result.stderr[-2000:]
  methods = json.loads((tmp_path / 'results.json').read_text())['methods']
  random, ours = methods['random'], methods['gpro_evolution']
  assert random['exponent']['mean'] == pytest.approx(1, abs=0.05)
  assert ours['exponent']['high'] < 0.9
  assert ours['gain']['mean'] > 0.2 > 0.05 > random['gain']['mean']
  assert ours['over_static']['mean'] > 0
  assert ours['regret']['high'] < random['regret']['low']
  assert ours['correlation'] > 0.65


def test_bad_input_is_one_clear_message(tmp_path):
  for flag, message in (
    ("--config.methods=('best',)", "method 'best': expected some of random"),
    (METHODS, 'expected each of them once'),  # added to those of `run`
    ('--config.loop.islands.count=11', 'islands.count=11 of population_size'),
    ('--config.loop.objectives=cost', 'expected nsga2, which keeps a front'),
    ('--config.split=dev', "split='dev': expected one of train, test"),
    ('--config.user.slips=2', 'slips=2.0: expected 0 to 1'),
    ('--config.model.backend=nobody', "backend 'nobody': expected one of jax"),
  ):
    result = run(tmp_path / 'w', flag)
    assert result.returncode != 0 and 'Traceback' not in result.stderr
    assert message in result.stderr, result.stderr[-500:]
    assert not (tmp_path / 'w').exists()
