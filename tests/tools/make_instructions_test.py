import json

import pytest

from promptrl_jax.tasks import instructions
from tests.experiments import commands


def run(*flags):
  return commands.run('promptrl_jax.tools.make_instructions', *flags)


def test_a_table_becomes_a_file_that_loads(tmp_path):
  (tmp_path / 'x.csv').write_text('id,q,a\n1,2 + 2,4\n')
  result = run(
    f'--csv={tmp_path / "x.csv"}',
    f'--output={tmp_path / "out.jsonl"}',
    '--map=input=q,output=a',
    '--drop=id',
    '--constant=task=math',
    '--constant=instruction=Add, please.',
    r'--constant=template={instruction}\nSum: {input}',
  )
  assert result.returncode == 0, result.stderr
  (task,) = instructions.load(tmp_path / 'out.jsonl')
  example = task.checker.examples[0]
  assert instructions.prompt(task.checker, task.statement, example) == (
    'Add, please.\nSum: 2 + 2'
  )


def test_a_data_set_becomes_three_files(tmp_path):
  (tmp_path / 'in').mkdir()
  for split in ('train', 'test'):
    rows = [
      {'question': f'{split} {i}?', 'answer': f'so\n#### {i}'}
      for i in range(20)
    ]
    text = ''.join(json.dumps(row) + '\n' for row in rows)
    (tmp_path / 'in' / f'{split}.jsonl').write_text(text)
  result = run(
    '--set=gsm8k',
    '--any_size',
    f'--path={tmp_path / "in"}',
    f'--output={tmp_path / "out"}',
  )
  assert result.returncode == 0, result.stderr
  sizes = [
    len(task.checker.examples)
    for split in ('train', 'dev', 'test')
    for task in instructions.load(tmp_path / 'out' / f'{split}.jsonl')
  ]
  assert sizes == [18, 2, 20]


@pytest.mark.slow
def test_bad_input_is_an_error_of_one_line(tmp_path):
  (tmp_path / 'x.csv').write_text('id,q,a\n1,2 + 2,4\n')
  source, output = f'--csv={tmp_path / "x.csv"}', f'--output={tmp_path / "y"}'
  for flags, message in (
    ((output,), 'expected one of --set, --csv'),
    ((source, output, '--map=input'), '--map=input: expected field='),
    ((source, output, '--map=input=q,output=a'), "what field 'instruction'"),
  ):
    result = run(*flags)
    assert result.returncode != 0
    assert message in result.stderr
    assert 'Traceback' not in result.stderr
  assert not (tmp_path / 'y').exists()
