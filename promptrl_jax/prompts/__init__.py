"""Requests to language models, and parsers of their replies."""
