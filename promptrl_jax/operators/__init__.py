"""Prompt edits: functions from a prompt and a source of chance to a prompt."""
