"""Language models: exact forward passes of a few families, and their files."""

from promptrl_jax.models.pretrained import load_pretrained, save_pretrained

__all__ = ['load_pretrained', 'save_pretrained']
