"""Hyperparameter sweeps: their options, the study that holds their trials, the trials' processes, and the report."""

import warnings

# Of tqdm, which Optuna imports, in a notebook without ipywidgets: no bar of it is shown anyway.
warnings.filterwarnings("ignore", "IProgress not found")
