"""Decoding: greedy, sampling and beam search, pure functions over a step function (cache, token) -> (cache, logits)."""

from decoding.beam import Hypotheses, beam_search
from decoding.decodable import DecodableModel
from decoding.greedy import greedy
from decoding.likelihood import Likelihood, log_likelihood
from decoding.sampling import row_keys, sample
from decoding.start import prefill_language_model, prefill_transformer
from decoding.step import Decoded, DecodeInputs

__all__ = [
    "DecodableModel",
    "DecodeInputs",
    "Decoded",
    "Hypotheses",
    "Likelihood",
    "beam_search",
    "greedy",
    "log_likelihood",
    "prefill_language_model",
    "prefill_transformer",
    "row_keys",
    "sample",
]
