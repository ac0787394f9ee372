"""The report of language models: how well they predict the held-out text, in units that compare across tokenizers."""

from __future__ import annotations

import math

from experiments.experiment import Report, Trained

ROWS = 128
"""Rows that are evaluated together."""


def report(trained: Trained) -> Report:
    """Every token of each held-out split, each predicted once: nats a token, bits a byte, perplexity a word.

    Perplexity a word is exp(nats / (words + documents)): words are what stands between spaces, and the end of each
    document is one more, as the One Billion Word benchmark counts. Neither it nor bits a byte depends on the tokenizer.
    """
    from evaluation.text_metrics import bits_per_byte
    from experiments.experiment import standard_loss
    from training.eval_step import evaluate, make_eval_step

    eval_step = make_eval_step(standard_loss(trained.config, trained.model))
    metrics: dict[str, float] = {}
    for split, tokens in trained.data.encoded["text"].items():
        if split == "train":
            continue
        nats = evaluate(eval_step, trained.params, trained.data.eval_batches(split, ROWS))["loss"]
        total = nats * int(tokens.lengths.sum())
        texts = [example["text"] for example in trained.data.examples(split)[:]]
        if not any(texts):
            print(f"{split}: {nats:.4f} nats a token, all of them ends of empty documents")
            continue
        words = sum(len(text.split()) for text in texts) + len(texts)
        bits = bits_per_byte(total, texts)
        perplexity = math.exp(min(total / words, 700.0))  # beyond it float64 overflows
        print(f"{split}: {nats:.4f} nats a token, {bits:.4f} bits a byte, perplexity {perplexity:,.2f} a word")
        metrics |= {
            f"{split}_nats": nats,
            f"{split}_bits_per_byte": bits,
            f"{split}_perplexity_per_word": perplexity,
        }
    return Report(metrics)
