"""Cross-entropy of the next token, as (sum, count): −Σ_t Σ_k p̂_tk log p_tk over the real tokens, and their number.

p̂ = (1 − ε) · one-hot + ε / V: label smoothing as Szegedy et al. 2016 define it (and optax), over all V entries of the
vocabulary. Other codebases spread ε over V − 1 or V − 2 of them, which gives other numbers. ∂CE/∂z = p − p̂, and CE
exceeds KL(p̂ ‖ p) by the entropy of p̂.

A loss is a sum and a count, never a mean: sums add over microbatches, devices and evaluation batches, and the mean is
one division at the end. To divide by sentences instead of tokens, a loss returns the number of sentences as count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from training.hyperparameters import Hyperparameters
from training.trainable import TrainableModel, check_trainable

Batch = dict[str, Any]
"""{"inputs": what the model is called with, "labels": [B, T] integers, "loss_mask": [B, T], True at real tokens}."""
Metrics = dict[str, tuple[Array, Array]]
"""By name a pair (sum, count)."""
Loss = Callable[[Any, Batch, Key[Array, ""] | None, Hyperparameters], Metrics]
"""(params, batch, dropout key or None, hyperparameters) -> metrics; the gradient is that of the sum of "objective", or
where there is none of "loss", divided by the count of "loss"."""
ExtraTerms = Callable[[Float[Array, "*N V"], Int[Array, "*N"], Bool[Array, "*N"]], Metrics]
"""(logits, labels, mask) -> auxiliary losses by name, their sums weighted already. Logits and labels are 0 where `mask`
is False."""
NAMES = ("loss", "accuracy", "exact_match", "objective")
"""Of what `token_loss` measures itself."""


def cross_entropy(
    logits: Float[Array, "*N V"],
    labels: Int[Array, "*N"],
    weights: Bool[Array, "*N"],
    smoothing: Float[Array, ""] | float | None = None,
) -> Float[Array, "*N"]:
    """−Σ_k p̂_k log p_k at each position, in nats; exactly 0 where `weights` is False.

    Logits and labels at such positions may be anything, NaN and −100 included: neither the sum nor the gradient sees
    them. A label outside of the vocabulary at a real position gives NaN. A logit of −∞ is a token of probability 0: it
    counts nothing where the target has none of it, and makes the cross-entropy ∞ where it is the label or `smoothing`
    gives it ε/V.

    Args:
      smoothing: ε in [0, 1), which may be traced; 0.0 gives the same as None.
    """
    # The logits are replaced before anything is computed from them, or the backward pass would multiply NaN by 0.
    logits = jnp.where(weights[..., None], logits, 0.0).astype(jnp.promote_types(logits.dtype, jnp.float32))
    safe = jnp.where(weights, labels, 0)
    picked = jnp.take_along_axis(logits, jnp.clip(safe, 0, logits.shape[-1] - 1)[..., None], axis=-1)[..., 0]
    picked = jnp.where((safe >= 0) & (safe < logits.shape[-1]), picked, jnp.nan)
    expected = picked
    if smoothing is not None:
        # Without smoothing the mean is out before it is multiplied: 0 · −∞ would be NaN.
        uniform = jnp.where(smoothing > 0, jnp.mean(logits, axis=-1), 0.0)
        expected = (1 - smoothing) * picked + smoothing * uniform
    return jnp.where(weights, jax.nn.logsumexp(logits, axis=-1) - expected, 0.0)


def token_metrics(
    logits: Float[Array, "*N V"],
    labels: Int[Array, "*N"],
    weights: Bool[Array, "*N"],
    smoothing: Float[Array, ""] | float | None = None,
) -> tuple[Float[Array, ""], Bool[Array, "*N"]]:
    """The summed cross-entropy, and at each position whether the most probable token is the label."""
    return cross_entropy(logits, labels, weights, smoothing).sum(), jnp.argmax(logits, axis=-1) == labels


def token_loss(
    model: TrainableModel, chunk: int = 0, exact_match: bool = False, extra: ExtraTerms | None = None
) -> Loss:
    """The loss of a model that predicts each label from `batch["inputs"]`.

    Args:
      model: any Flax module with the methods of `TrainableModel`.
      chunk: positions whose logits exist at a time, forward and backward; 0: all. Memory falls from B·T·V to chunk·V.
      exact_match: also count the rows whose every label is the most probable token after the right ones. That is the
        case just if greedy decoding gives the row, so this is its exact match, in one forward pass.
      extra: auxiliary losses, added to what is minimised, each a metric of its own; "loss" stays the cross-entropy, and
        "objective" is the sum of all. The z-loss of PaLM (Chowdhery et al. 2022, §5):

            def z_loss(logits, labels, mask):
                log_z = jax.nn.logsumexp(logits, axis=-1)
                return {"z_loss": (1e-4 * jnp.where(mask, log_z**2, 0).sum(), mask.sum())}

    Raises:
      ValueError: a model that lacks one of the methods; when it is traced, an auxiliary loss with the name of another
        metric.

    Returns:
      A `Loss` with "loss" (nats; the count is of real tokens), "accuracy", and "exact_match" if asked for. With a key
      there is dropout at the hyperparameters' rates, where they have any.
    """
    check_trainable(model)

    def loss(params: Any, batch: Batch, key: Array | None, hyper: Hyperparameters) -> Metrics:
        labels, weights, smoothing = batch["labels"], batch["loss_mask"], hyper.get("label_smoothing")
        dropping = {}
        if key is not None:
            dropping = {
                "dropout_rate": hyper.get("dropout"),
                "attention_dropout_rate": hyper.get("attention_dropout"),
                "rngs": {"dropout": key},
            }
        features = model.apply({"params": params}, **batch["inputs"], **dropping, method="features")

        def pieces(params: Any, features: Array, labels: Array, weights: Array) -> tuple[Array, Array, Metrics]:
            logits = model.apply({"params": params}, features, method="logits")
            return *token_metrics(logits, labels, weights, smoothing), _extra_terms(extra, logits, labels, weights)

        if chunk:
            total, right, terms = _chunked(pieces, params, features, labels, weights, chunk)
        else:
            total, right, terms = pieces(params, features, labels, weights)
        count = weights.sum(dtype=jnp.int32)
        metrics = {"loss": (total, count), "accuracy": ((right & weights).sum(dtype=jnp.int32), count)}
        if exact_match:
            real = weights.any(axis=1)
            rows = (right | ~weights).all(axis=1) & real
            metrics["exact_match"] = (rows.sum(dtype=jnp.int32), real.sum(dtype=jnp.int32))
        if terms:
            metrics |= {**terms, "objective": (total + sum(value for value, _ in terms.values()), count)}
        return metrics

    return loss


def _extra_terms(extra: ExtraTerms | None, logits: Array, labels: Array, mask: Array) -> Metrics:
    if extra is None:
        return {}
    # As in `cross_entropy`: nothing is computed from what stands at padding, or the backward pass would see it.
    logits = jnp.where(mask[..., None], logits, 0.0).astype(jnp.promote_types(logits.dtype, jnp.float32))
    terms = extra(logits, jnp.where(mask, labels, 0), mask)
    if taken := sorted(set(terms) & set(NAMES)):
        raise ValueError(f"an auxiliary loss must not be named {taken[0]}, which is a metric of the loss itself")
    return {name: (value, jnp.asarray(count, jnp.int32)) for name, (value, count) in terms.items()}


def _chunked(pieces: Callable, params: Any, features: Array, labels: Array, weights: Array, chunk: int):
    """`pieces` over [1, chunk] positions at a time, rematerialised, so that no [B·T, V] array ever exists."""
    count = labels.size
    padding = -count % chunk

    def cut(x: Array, *width: int) -> Array:
        flat = x.reshape(count, *width)
        return jnp.pad(flat, [(0, padding)] + [(0, 0)] * len(width)).reshape(-1, 1, chunk, *width)

    @jax.checkpoint
    def step(total: Array, piece: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Metrics]]:
        added, right, terms = pieces(params, *piece)
        return total + added, (right, terms)

    cuts = (cut(features, features.shape[-1]), cut(labels), cut(weights))
    total, (right, terms) = jax.lax.scan(step, jnp.zeros((), features.dtype), cuts)
    terms = jax.tree.map(lambda each: each.sum(axis=0, dtype=each.dtype), terms)
    return total, right.reshape(-1)[:count].reshape(labels.shape), terms
