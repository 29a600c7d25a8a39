"""Drivers of other samplers and trainers, each run in its own environment.

The drivers are scripts. They import the shared modules of this folder and
nothing of promptrl_jax. A driver must not have the name of a peer's package,
which it would shadow.
"""
