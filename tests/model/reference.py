"""The Transformer in float64 NumPy: the formulas of the paper, one position and one head at a time.

Written from the formulas alone, so that it can contradict `model/`. It reads the same parameters (nested dicts), and
positions are rounded to float32 because that is how they are specified.
"""

import numpy as np


def float64(tree):
    """The same nested dict with float64 NumPy arrays."""
    return {k: float64(v) for k, v in tree.items()} if isinstance(tree, dict) else np.asarray(tree, np.float64)


def attention(query, key, value, mask=None):
    """y_i = Σ_j A_ij v_j with A_ij = exp(q_iᵀk_j / √d_k) / Σ_l exp(q_iᵀk_l / √d_k), sums over the keys that i sees."""
    batch, heads, num_queries, d_k = query.shape
    groups, num_keys = key.shape[1:3]
    visible = np.broadcast_to(True if mask is None else mask, (batch, heads, num_queries, num_keys))
    weights = np.zeros((batch, heads, num_queries, num_keys))
    output = np.zeros((batch, heads, num_queries, value.shape[-1]))
    for b, h, i in np.ndindex(batch, heads, num_queries):
        group = h * groups // heads
        seen = [j for j in range(num_keys) if visible[b, h, i, j]]
        scores = {j: sum(query[b, h, i] * key[b, group, j]) / np.sqrt(d_k) for j in seen}
        exponentials = {j: np.exp(scores[j] - max(scores.values())) for j in seen}
        for j in seen:
            weights[b, h, i, j] = exponentials[j] / sum(exponentials.values())
            output[b, h, i] += weights[b, h, i, j] * value[b, group, j]
    return output, weights


def affine(params, x):
    return x @ params["kernel"] + params.get("bias", 0)


def head_of(params, x, number, of):
    """x W_h + b_h, where W_h is the h-th of `of` equal blocks of columns: [B, T, K]."""
    width = params["kernel"].shape[1] // of
    columns = slice(number * width, (number + 1) * width)
    return x @ params["kernel"][:, columns] + params.get("bias", np.zeros(width * of))[columns]


def multi_head_attention(params, x, memory, mask, num_heads, num_kv_heads):
    """Concat(head_1 … head_H) W^O with head_h = Attention(X W_h^Q, M W_g^K, M W_g^V), and every head's weights."""
    heads, weights = [], []
    mask = None if mask is None else np.broadcast_to(mask, (len(x), num_heads, x.shape[1], memory.shape[1]))
    for h in range(num_heads):
        g = h // (num_heads // num_kv_heads)
        query = head_of(params["query"], x, h, num_heads)
        key = head_of(params["key"], memory, g, num_kv_heads)
        value = head_of(params["value"], memory, g, num_kv_heads)
        only = None if mask is None else mask[:, h : h + 1]
        head, weight = attention(query[:, None], key[:, None], value[:, None], only)
        heads.append(head[:, 0])
        weights.append(weight[:, 0])
    return affine(params["output"], np.concatenate(heads, axis=-1)), np.stack(weights, axis=1)


def layer_norm(params, x):
    y = np.empty_like(x)
    for index in np.ndindex(x.shape[:-1]):
        mean = sum(x[index]) / len(x[index])
        variance = sum((x[index] - mean) ** 2) / len(x[index])
        y[index] = (x[index] - mean) / np.sqrt(variance + 1e-5) * params["scale"] + params.get("bias", 0)
    return y


def relu(x):
    return np.where(x > 0, x, 0)


def gelu(x):
    """GPT-2's: x Φ(x) with Φ(x) ≈ ½ (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def feed_forward(params, x, activation):
    return affine(params["output"], {"relu": relu, "gelu": gelu}[activation](affine(params["hidden"], x)))


def sinusoid(position, d_model):
    """PE(t, 2i) = sin(t / 10000^(2i/d_model)), PE(t, 2i+1) = cos(t / 10000^(2i/d_model))."""
    row = np.empty(d_model)
    for column in range(d_model):
        i = column // 2
        angle = position / 10000 ** (2 * i / d_model)
        row[column] = np.sin(angle) if column % 2 == 0 else np.cos(angle)
    return row


def residual(norm, x, sublayer, norm_position):
    """x + F(LN(x)), or the paper's LN(x + F(x))."""
    if norm_position == "pre":
        return x + sublayer(layer_norm(norm, x))
    return layer_norm(norm, x + sublayer(x))


def encoder_block(params, x, mask, config):
    kept = {}

    def self_attention(y):
        y, kept["self_attention"] = multi_head_attention(
            params["self_attention"], y, y, mask, config.num_heads, config.kv_heads
        )
        return y

    x = residual(params["self_attention_norm"], x, self_attention, config.norm_position)
    x = residual(
        params["feed_forward_norm"],
        x,
        lambda y: feed_forward(params["feed_forward"], y, config.activation),
        config.norm_position,
    )
    return x, kept


def decoder_block(params, x, memory, mask, memory_mask, config):
    kept = {}

    def attend(name, y, to, mask):
        y, kept[name] = multi_head_attention(params[name], y, to, mask, config.num_heads, config.kv_heads)
        return y

    where = config.norm_position
    x = residual(params["self_attention_norm"], x, lambda y: attend("self_attention", y, y, mask), where)
    x = residual(params["cross_attention_norm"], x, lambda y: attend("cross_attention", y, memory, memory_mask), where)
    x = residual(
        params["feed_forward_norm"], x, lambda y: feed_forward(params["feed_forward"], y, config.activation), where
    )
    return x, kept


def causal(length):
    return np.array([[[[j <= i for j in range(length)] for i in range(length)]]])


def embedded(table, positions_table, ids, positions, config):
    """√d_model · E[token] + PE(position), one token at a time."""
    x = np.zeros((*ids.shape, config.d_model))
    for b, t in np.ndindex(ids.shape):
        x[b, t] = np.sqrt(config.d_model) * table[ids[b, t]]
        if config.positions == "sinusoidal":
            x[b, t] += sinusoid(positions[b, t], config.d_model).astype(np.float32)
        elif config.positions == "learned":
            x[b, t] += positions_table[positions[b, t]]
    return x


def layer(params, number):
    """The parameters of one layer, out of those stacked along the first axis."""
    return {k: layer(v, number) if isinstance(v, dict) else v[number] for k, v in params.items()}


def stacked(kept):
    return {name: np.stack([weights[name] for weights in kept]) for name in kept[0]}


def last_norm(params, name, x):
    return layer_norm(params[name], x) if name in params else x


def language_model(params, tokens, config, valid=None, segments=None, positions=None):
    """Logits [B, T, V] and the weights [L, B, H, T, T]."""
    batch, length = tokens.shape
    mask = np.repeat(causal(length), batch, axis=0)
    for b, i, j in np.ndindex(batch, length, length):
        if valid is not None and not valid[b, j]:
            mask[b, 0, i, j] = False
        if segments is not None and segments[b, i] != segments[b, j]:
            mask[b, 0, i, j] = False
    positions = np.tile(np.arange(length), (batch, 1)) if positions is None else positions
    table = params["embedding"]["table"]
    x = embedded(table, params.get("positions", {}).get("table"), tokens, positions, config)
    kept = []
    for number in range(config.num_layers):
        x, weights = encoder_block(layer(params["layers"], number), x, mask, config)
        kept.append(weights)
    x = last_norm(params, "norm", x)
    output = params["unembedding"]["kernel"] if config.embeddings == "separate" else table.T
    return x @ output, stacked(kept)


def transformer(params, source, target, config, source_valid=None):
    """Logits [B, T, V] and the weights of encoder and decoder, as the model names them."""
    source_valid = source != 0 if source_valid is None else source_valid
    one = config.embeddings == "shared"
    source_table = params["embedding" if one else "source_embedding"]["table"]
    target_table = params["embedding" if one else "target_embedding"]["table"]

    def read(table, side, ids):
        positions = np.tile(np.arange(ids.shape[1]), (len(ids), 1))
        return embedded(table, params.get(f"{side}_positions", {}).get("table"), ids, positions, config)

    source_mask = source_valid[:, None, None, :]
    memory, encoder_kept = read(source_table, "source", source), []
    for number in range(config.num_encoder_layers):
        memory, weights = encoder_block(layer(params["encoder"], number), memory, source_mask, config)
        encoder_kept.append(weights)
    memory = last_norm(params, "encoder_norm", memory)

    x, decoder_kept = read(target_table, "target", target), []
    for number in range(config.num_decoder_layers):
        x, weights = decoder_block(
            layer(params["decoder"], number), x, memory, causal(target.shape[1]), source_mask, config
        )
        decoder_kept.append(weights)
    x = last_norm(params, "decoder_norm", x)
    output = params["unembedding"]["kernel"] if config.embeddings == "separate" else target_table.T
    kept = {f"encoder_{name}": value for name, value in stacked(encoder_kept).items()}
    kept |= {f"decoder_{name}": value for name, value in stacked(decoder_kept).items()}
    return x @ output, kept
