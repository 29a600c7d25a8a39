"""Commands: `python -m promptrl_jax.tools.NAME`."""
