"""How a model learns: loss, schedules, optimizer, the pure step, devices, evaluation, checkpoints, metrics.

The loop that puts them in order is `train.py` at the root.
"""
