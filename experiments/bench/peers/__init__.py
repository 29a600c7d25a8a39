"""Drivers of other samplers, each run by the Python of its own environment.

They are scripts: what they share, `workload` and `qwen2`, lies beside them, and
nothing of promptrl_jax is imported. None may be called like a peer's package,
which it would hide.
"""
