"""Experiments, one per file: a docstring, a config, and the functions that differ from the standard ones.

`experiment.py` is the contract of an experiment, `reports.py` has the standard reports, `registry.py` finds one.
"""
