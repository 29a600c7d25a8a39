"""State, updates, checkpoints and metrics: where a model meets a loss."""
