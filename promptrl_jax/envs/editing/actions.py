"""The actions of the prompt-edit environment, by name, and what they cost.

  keep          ask again with the prompt as it is, greedily
  resample      ask again with the prompt as it is, a new sample
  lexical       replace words of the statement by synonyms, then ask
  semantic      let the rewriter state the task anew, then ask
  repair        show the failing program and what went wrong with it
  reset_prompt  undo all edits of the statement, then ask
  submit        stop and hand in the best program so far

In PROMIS's code 0, 1, 2 are keep, semantic, lexical; in its result table they
are keep, lexical, semantic. Names do not have that problem.
"""

from __future__ import annotations

ACTIONS = (
  'keep',
  'resample',
  'lexical',
  'semantic',
  'repair',
  'reset_prompt',
  'submit',
)
PROMIS_ACTIONS = ('keep', 'semantic', 'lexical')

# Language-model calls, of any role.
COST = {
  'keep': 1,
  'resample': 1,
  'lexical': 1,
  'semantic': 2,
  'repair': 1,
  'reset_prompt': 1,
  'submit': 0,
}


def check_actions(actions: tuple[str, ...]) -> None:
  """Raises if a name is unknown or `keep`, the fallback, is missing."""
  unknown = [a for a in actions if a not in ACTIONS]
  if unknown:
    raise ValueError(f'unknown actions {unknown}: expected some of {ACTIONS}')
  if 'keep' not in actions:
    raise ValueError(f'actions {actions} must contain "keep", the fallback')
