"""Evaluation of a trained model: metrics, and their computation over a split."""
