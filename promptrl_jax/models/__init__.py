"""Language models: forward passes, tokenizers and checkpoints."""

from promptrl_jax.models.pretrained import load_pretrained, save_pretrained

__all__ = ['load_pretrained', 'save_pretrained']
