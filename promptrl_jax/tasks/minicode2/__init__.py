"""minicode 2: small programming problems that fail for different reasons.

A benchmark in MBPP's schema for prompt optimisation on a laptop. A grammar
composes problems: which elements are kept, what is made of each, what all of
them become ("find the sum of the squares of the numbers greater than 7 in a
list"). A problem can be hard for five reasons, and each calls for another way
out; `wording.py` lists them. Each problem has a reference program and six
assertions that are drawn alike; under `visible1` the first is shown.

              problems  templates
  pretrain         800  those that the frozen models learn from
  policy         1,600  others: `train` of everything that learns to prompt
  held             800  others, kept back
  validation       300  half known with new parameters, half unseen
  test             600  half known with new parameters, half unseen
  ood              300  half of unseen families, half with two filters
  wording          600  the problems of `test` in other words, names and tests

  grammar.py    templates and problems
  domains.py    the filters, maps and reduces, as data
  wording.py    stories, rare words, forms of results
  generate.py   grammar -> rows, deterministic from a seed
  suite.py      reads the frozen rows
"""
