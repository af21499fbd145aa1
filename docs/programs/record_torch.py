"""A PyTorch loop: each run is recorded as it finishes, with its seed and a swept value.
Started again, the program resumes.
"""

import sys

import torch
from torch import nn

import vmapseeds as vs

digits = vs.load_dataset("digits")
train, test = digits.train, digits.tests["test"]
x, x_test = (torch.tensor(of.inputs).flatten(1) / 16 for of in (train, test))
y = torch.tensor(train.targets).long()


def train_network(seed, dropout):
  torch.manual_seed(seed)
  layers = nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10)
  network = nn.Sequential(*layers)
  optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
  for _ in range(100):
    rows = torch.randint(len(x), (64,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
    optimizer.step()
  return network.eval()


if __name__ == "__main__":
  torch.set_num_threads(1)  # more only wait for each other in so small a network
  out = sys.argv[1] if len(sys.argv) > 1 else "results/record_torch"
  recorder = vs.Recorder(out, labels=test.targets)
  for seed in range(20):
    for dropout in (0.0, 0.5):
      if not recorder.has(seed=seed, dropout=dropout):
        logits = train_network(seed, dropout)(x_test)
        recorder.add(logits=logits.detach(), seed=seed, dropout=dropout)
  vs.report(out).print()
  vs.compare(out, where={"dropout": 0.0}, against={"dropout": 0.5}).print()
  # Which of the two is better by the mean of its runs, paired by seeds, and how surely.
