"""A callback for the Trainer of Hugging Face's transformers: at the end of each training
it records the run, by the trainer's seed and learning rate.
"""

import sys
import tempfile

import numpy as np
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

import vmapseeds as vs


class RecordRun(TrainerCallback):
  def __init__(self, recorder, inputs):
    self.recorder, self.inputs = recorder, inputs

  def on_train_end(self, args, state, control, model, **kwargs):
    with torch.no_grad():
      logits = model.eval()(self.inputs.to(args.device))["logits"]
    self.recorder.add(logits=logits.cpu(), seed=args.seed, lr=args.learning_rate)


class Classifier(nn.Module):
  def __init__(self):
    super().__init__()
    self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

  def forward(self, x, labels=None):
    logits = self.layers(x)
    loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
    return {"loss": loss, "logits": logits}


if __name__ == "__main__":
  out = sys.argv[1] if len(sys.argv) > 1 else "results/record_trainer"
  digits = vs.load_dataset("digits")
  train, test = digits.train, digits.tests["test"]
  x, x_test = (np.float32(of.inputs.reshape(len(of), -1)) / 16 for of in (train, test))
  rows = [{"x": a, "labels": int(b)} for a, b in zip(x, train.targets, strict=True)]
  recorder = vs.Recorder(out, labels=test.targets)
  callback = RecordRun(recorder, torch.tensor(x_test))
  for seed in range(10):
    for lr in (3e-3, 3e-2):
      if recorder.has(seed=seed, lr=lr):
        continue
      torch.manual_seed(seed)
      with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
          folder,
          seed=seed,
          learning_rate=lr,
          num_train_epochs=2,
          per_device_train_batch_size=32,
          save_strategy="no",
          report_to=[],
          disable_tqdm=True,
          use_cpu=True,
        )
        trainer = Trainer(Classifier(), arguments, train_dataset=rows)
        trainer.add_callback(callback)
        trainer.train()
  vs.report(out).print()
  vs.compare(out, where={"lr": 3e-2}, against={"lr": 3e-3}).print()
  # Which learning rate is better by the mean of its runs, and how surely.
