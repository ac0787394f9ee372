"""How text comes out of a model: pure functions over a step function (cache, token) -> (cache, logits)."""

from decoding.beam import Hypotheses, beam_search
from decoding.greedy import greedy
from decoding.likelihood import Likelihood, log_likelihood
from decoding.sampling import row_keys, sample
from decoding.start import Start, start_language_model, start_transformer
from decoding.step import Decoded

__all__ = [
    "Decoded",
    "Hypotheses",
    "Likelihood",
    "Start",
    "beam_search",
    "greedy",
    "log_likelihood",
    "row_keys",
    "sample",
    "start_language_model",
    "start_transformer",
]
