"""Training: loss, schedules, optimizer, the pure step, sharding, evaluation, checkpoints, metrics.

The loop that puts them in order is `train.py` at the root.
"""
