"""Prompts for tests, and edits whose outcome is known beforehand."""

import numpy as np

from promptrl_jax.prompts.genome import PromptGenome

ONE = PromptGenome({'role': 'a tutor', 'tone': '', 'format': 'lists'})
TWO = PromptGenome({'role': 'a judge', 'format': 'prose', 'limits': 'none'})


def rng(*seed):
  return np.random.default_rng(seed)


def texts(*lines):
  return [PromptGenome({'role': line}) for line in lines]


def shout(edits):
  """Marks every edit, so that a section shows how often it was edited."""
  return [f'{edit.text}!' for edit in edits]


def refuse(edits):
  """Leaves everything as it is."""
  return [edit.text for edit in edits]


def marks(genomes):
  """The number of marks in each prompt is its fitness."""
  return [genome.render().count('!') for genome in genomes]
