"""The tokenizer and the model that the trainers of TRL load."""

from __future__ import annotations

import os

# To be set before transformers is imported; nothing is loaded from a hub.
os.environ |= {
  'HF_HUB_OFFLINE': '1',
  'TRL_EXPERIMENTAL_SILENCE': '1',
  'TOKENIZERS_PARALLELISM': 'false',
}

import warnings

import iterations
import qwen2
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
  PreTrainedTokenizerFast,
  PrinterCallback,
  Qwen2ForCausalLM,
  Trainer,
  TrainerCallback,
  logging,
)


def quiet() -> None:
  """Silences warnings and progress bars."""
  warnings.filterwarnings('ignore')
  logging.set_verbosity_error()
  logging.disable_progress_bar()


def make_tokenizer(work: iterations.Work) -> PreTrainedTokenizerFast:
  """Returns a tokenizer whose words are token ids.

  The end and padding tokens have an id that no model samples.
  """
  vocab = {str(i): i for i in range(work.shape['vocab_size'])}
  vocab['<none>'] = work.no_token
  words = Tokenizer(models.WordLevel(vocab, unk_token='<none>'))
  words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  return PreTrainedTokenizerFast(
    tokenizer_object=words,
    pad_token='<none>',
    eos_token='<none>',
    unk_token='<none>',
    padding_side='left',
    clean_up_tokenization_spaces=False,
  )


def save_model(work: iterations.Work, folder: str) -> None:
  """Writes a model with random weights, which is policy and reference."""
  torch.manual_seed(0)
  Qwen2ForCausalLM(qwen2.config(work.shape)).save_pretrained(folder)


class EndOfStep(TrainerCallback):
  """Calls the clock at the end of each update."""

  def __init__(self, clock: iterations.Clock):
    self.clock = clock

  def on_step_end(self, args, state, control, **kwargs):
    self.clock.iteration_ends()


def train(trainer: Trainer, clock: iterations.Clock) -> None:
  """Runs a trainer until the clock ends it, without printing its log."""
  trainer.remove_callback(PrinterCallback)
  trainer.add_callback(EndOfStep(clock))
  with clock.running():
    trainer.train()
