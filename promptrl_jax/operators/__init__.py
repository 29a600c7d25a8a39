"""Prompt edits: functions from a prompt and a random generator to a prompt."""
