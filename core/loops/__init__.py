"""The loops: a run in one process, the training loop, and evaluation."""
