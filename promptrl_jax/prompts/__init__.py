"""Prompts as data: what a model is asked, and what is read in its answer."""
