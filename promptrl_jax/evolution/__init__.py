"""A population of prompts that evolves.

  population ──breed──> children ──score_fn──> elite and children ──select──┐
      ^                   ^                                                 │
      │                   └── section edits, a hint from critic or comments │
      └─────────────────────────────────────────────────────────────────────┘

`evolve` is one generation; what edits a section and what scores a prompt are
functions that it is given. Everything is a function of its arguments and of the
random numbers that it is handed.
"""
