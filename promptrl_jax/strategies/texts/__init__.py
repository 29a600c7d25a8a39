"""Searches over one text that serves all problems: an instruction, a prompt.

  start ──> search ──Propose──> a model writes new texts ──┐
              ^  └──Evaluate──> a metric scores them ──────┤
              └────────────── answers <── journal <────────┘

A search (`gepa`, `best_of_n`, `evolve`) is a generator: it yields batches of
requests and is sent their answers, so that it holds neither a model nor a
metric, and is a pure function of its seed and the answers. What was answered
lies in a journal; a search that is started again reads its answers there and
goes on where it was. `optimize` is the way in.
"""
