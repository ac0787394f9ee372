"""Hyperparameter sweeps: their options, the study that holds their trials, the trials' processes, and the report."""
