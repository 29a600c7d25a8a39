"""minicode: small programming problems whose wording is the difficulty.

A benchmark in MBPP's schema for prompt optimisation on a laptop. 216 families
of problems (lists 60, strings 42, numbers 38, compositions 30, dicts 18, tuples
14, sets 14) with parameters give 4,209 problems; each has a reference program,
five assertions, and a statement in one register:

               problems
  canonical       1,059  "Write a function to find the sum of all numbers
                         greater than 7 in a list."
  paraphrased     1,061  other words, order or voice, and synonyms
  terse           1,048  a detail is left out; the first assertion tells it
  noisy           1,041  polite filler, irrelevant sentences, typos

Splits are disjoint in problems: train 2,855, validation 291, test 537. A
fourth, `ood` (526), holds 28 families that no model of the project has seen.
Half of the functions are named after what they do, the others `solve`,
`helper`, ...

The suite measures whether a policy finds the edit of a prompt that makes a code
model pass hidden tests. Protocols (which assertions are visible) are in
`tasks.splits`. `minicode.jsonl.gz` is frozen, and every result contains its
hash. Models may be trained on the train split only: results of a model that has
seen other problems of the suite are meaningless.

  families/     the families, as data
  family.py     the template of a family
  registers.py  the four wordings
  generate.py   families -> rows, deterministic from a seed
  suite.py      reads the frozen rows
"""
