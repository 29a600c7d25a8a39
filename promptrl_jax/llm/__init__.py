"""Text in, text out: one protocol, many servers."""
