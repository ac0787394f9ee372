"""How many parameters a model has, by formula: what the shapes say, without making any."""

from __future__ import annotations

from model.config import BlockConfig, LanguageModelConfig, TransformerConfig


def count_parameters(config: BlockConfig, *vocab_sizes: int) -> int:
    """Parameters of a model with standard parts. A matrix used twice (tied, shared) counts once.

    Args:
      config: of either model.
      vocab_sizes: V for a language model; source and target V for a Transformer.
    """
    width = config.d_model
    queries, keys = config.num_heads * config.key_width, config.kv_heads * config.key_width
    values, heads = config.kv_heads * config.value_width, config.num_heads * config.value_width
    attention = width * (queries + keys + values) + heads * width
    if config.attention_bias:
        attention += queries + keys + values + width
    feed_forward = 2 * width * config.d_ff + (config.d_ff + width if config.feed_forward_bias else 0)
    norm = width * (2 if config.feed_forward_bias else 1)
    positions = config.max_length * width if config.positions == "learned" else 0
    last_norm = norm if config.norm_position == "pre" else 0
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm

    if isinstance(config, LanguageModelConfig):
        (vocab_size,) = vocab_sizes
        tables = vocab_size * (2 if config.embeddings == "separate" else 1)
        return tables * width + positions + config.num_layers * encoder_layer + last_norm
    assert isinstance(config, TransformerConfig)
    source, target = vocab_sizes
    tables = {"shared": source, "tied": source + target, "separate": source + 2 * target}[config.embeddings]
    stacks = config.num_encoder_layers * encoder_layer + config.num_decoder_layers * decoder_layer
    return tables * width + 2 * positions + stacks + 2 * last_norm
