"""A file that asks for the end of a run."""

import pytest

from experiments.stopping import StopFile, Stopped


def test_a_bar_ends_before_the_next_item(tmp_path):
  stop, seen = StopFile(tmp_path), []
  with pytest.raises(Stopped, match='stop: the same command goes on'):
    for item in stop.bar(range(5), desc='search'):
      seen.append(item)
      if item == 2:
        (tmp_path / 'stop').touch()
  assert seen == [0, 1, 2]
  # It is asked for once: the same command goes on to the end.
  assert list(stop.bar(range(5))) == list(range(5))
  (tmp_path / 'stop').touch()
  stop.remove()  # once more where there is none
  stop.remove()
  stop.check()
