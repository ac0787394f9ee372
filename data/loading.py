"""Loading of data: from a data config to batches, dicts of NumPy arrays.

    pairs: {"inputs": {"source": [B, S], "target": [B, T]}, "labels": [B, T], "loss_mask": [B, T]}
    text:  {"inputs": {"tokens": [B, T]},                   "labels": [B, T], "loss_mask": [B, T]}

All are int32, but the mask, which is bool. For a source sentence x and its target y, `source` is x EOS, `target` (the
decoder's input) BOS y, and `labels` y EOS, all filled with PAD. `loss_mask` is True where a label counts: up to EOS,
which a model must learn, and never at PAD. Packed documents have also "segments" and "positions" (int32 [B, T]) among
their inputs, and batches for evaluation "rows" (int32 [B]), the number of each row's example.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from data.buckets import bucket_widths
from data.config import DataConfig
from data.dataset import EncodedDatasets, tokenizer_file
from data.locate import locate
from data.packing import join, pack
from data.pairs import PairData
from data.prepare import prepare
from data.sequences import Sequences, encode
from data.sources.fingerprint import fingerprint
from data.sources.grammar import resolve_mixture
from data.sources.memory import InMemoryDataset
from data.sources.records import Dataset, check_split, read_columns
from data.text import TextData
from data.tokenizers.factory import load_tokenizer, make_tokenizers

_SHORT = 128
"""Tokens of a sentence that is not reported as long, however short the others are."""

Texts = dict[str, dict[str, list[str]]]
"""Split -> side -> texts."""


def load(config: DataConfig, tokenizers_from: str | Path | None = None) -> PairData | TextData:
    """Prepare, read and encode the dataset that `config` names.

    Tokenizers are trained on the training split, of a mixture on those of all datasets together, or read from the
    directory `tokenizers_from`. Prints one line for each dataset with unknown characters in held-out splits, and for
    each with examples that are too long.

    Raises:
      ValueError: the data cannot be trained on; in one line.
    """
    parts = resolve_mixture(config.source, lambda name: prepare(name, config.directory))
    return load_mixture(parts, config, tokenizers_from)


def load_examples(
    splits: Mapping[str, Iterable[Mapping[str, str]]],
    config: DataConfig,
    tokenizers_from: str | Path | None = None,
    name: str = "examples",
) -> PairData | TextData:
    """`load` for examples in memory, or generated: what `Experiment.data` may return.

    Args:
      splits: split -> examples in their order, dicts of str: "source" and "target", or "text"; further keys are kept.
        There must be train and validation; an iterable is read once, when this is called.
      config: how they become batches. `config.source` is not read.
      tokenizers_from: as for `load`.
      name: as messages and the run's `data.json` name them.

    Raises:
      TypeError, ValueError: as `data.sources.memory.InMemoryDataset` and `load`.
    """
    return load_mixture([(InMemoryDataset(name, splits), Fraction(1))], config, tokenizers_from)


def load_mixture(
    parts: Sequence[tuple[Dataset, Fraction]], config: DataConfig, tokenizers_from: str | Path | None = None
) -> PairData | TextData:
    """`load` for datasets that are prepared already, each with its share of the batches (their sum is 1).

    All must be pairs, or all text. Held-out splits are those of all datasets concatenated.
    """
    datasets = tuple(dataset for dataset, _ in parts)
    sides = _sides(datasets)
    for dataset in datasets:
        check_split(dataset, "train")
    if sides == ("text",) and not config.max_target_length:
        raise ValueError("max_target_length, the length of a row, must be given for text")

    texts: list[Texts] = [
        {split: read_columns(dataset, split, sides) for split, info in dataset.info.splits.items() if info.num_examples}
        for dataset in datasets
    ]
    if tokenizers_from:
        tokenizers = {side: load_tokenizer(tokenizer_file(tokenizers_from, side)) for side in sides}
    else:
        corpus = {side: [text for each in texts for text in each["train"][side]] for side in sides}
        tokenizers = make_tokenizers(config, corpus)
    splits = list(dict.fromkeys(split for each in texts for split in each))
    encoded: dict[str, dict[str, list[Sequences]]] = {split: {side: [] for side in sides} for split in splits}
    for dataset, each in zip(datasets, texts, strict=True):
        for side in sides:
            for split, columns in each.items():
                sequences = encode(tokenizers[side], columns[side], f"{side} of {dataset.name}, split {split}")
                encoded[split][side].append(sequences)
                if sequences.num_unknown:
                    print(f"{dataset.name}, {split}: {sequences.num_unknown:,} tokens of {side} are unknown")
    loaded = EncodedDatasets(
        config=config,
        datasets=datasets,
        mixture_weights=tuple(weight for _, weight in parts),
        tokenizers=tokenizers,
        encoded={
            split: {side: Sequences.joined(each) for side, each in of_side.items()}
            for split, of_side in encoded.items()
        },
        sizes={split: tuple(len(each[split][sides[0]]) if split in each else 0 for each in texts) for split in splits},
        fingerprints={
            dataset.name: {split: fingerprint(columns) for split, columns in each.items()}
            for dataset, each in zip(datasets, texts, strict=True)
        },
    )
    return _text_data(loaded) if sides == ("text",) else _pair_data(loaded)


def _sides(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    found = []
    for dataset in datasets:
        names = set(dataset.info.features)
        sides = next((sides for sides in (("source", "target"), ("text",)) if names.issuperset(sides)), None)
        if sides is None:
            raise ValueError(
                f"{dataset.name} has features {', '.join(sorted(names))}; wanted: source and target, or text"
            )
        found.append(sides)
    if len(set(found)) > 1:
        kinds = ", ".join(f"{dataset.name} has {' and '.join(sides)}" for dataset, sides in zip(datasets, found))
        raise ValueError(f"a mixture is of pairs, or of text, not of both: {kinds}")
    return found[0]


def _text_data(loaded: EncodedDatasets) -> TextData:
    """Lay out each split's documents in rows of `max_target_length` tokens."""
    width, documents = loaded.config.max_target_length, loaded.config.packing == "documents"
    layout, train_sizes = {}, ()
    for split, of_side in loaded.encoded.items():
        packings, begin = [], 0
        for dataset, place in loaded.examples_of(split):
            lengths = of_side["text"].lengths[place]
            long = int(np.count_nonzero(lengths > width))
            if documents and long:
                print(
                    f"{dataset.name}, {split}: {long:,} of {len(lengths):,} documents are longer than {width} tokens "
                    "and are taken in pieces"
                )
            packings.append(pack(lengths if documents else lengths.sum(keepdims=True), width, begin))
            begin += int(lengths.sum())
        layout[split] = join(packings)
        if split == "train":
            train_sizes = tuple(map(len, packings))
    return TextData(**vars(loaded), widths=((width,),), layout=layout, train_sizes=train_sizes)


def _pair_data(loaded: EncodedDatasets) -> PairData:
    """Choose the maximal lengths, the training pairs that fit them, and the widths of the buckets."""
    config, train = loaded.config, loaded.encoded["train"]
    max_source = config.max_source_length or int(train["source"].lengths.max())
    max_target = config.max_target_length or int(train["target"].lengths.max())
    kept = []
    for split, of_side in loaded.encoded.items():
        all_fit = (of_side["source"].lengths <= max_source) & (of_side["target"].lengths <= max_target)
        for dataset, place in loaded.examples_of(split):
            fits = all_fit[place]
            if split == "train":
                kept.append(place.start + np.flatnonzero(fits))
            if not fits.all():
                print(
                    f"{dataset.name}, {split}: {np.count_nonzero(~fits):,} of {len(fits):,} examples are longer than "
                    f"{max_source} source or {max_target} target tokens and are "
                    + ("left out" if split == "train" else "cut")
                )
    all_kept = np.concatenate(kept)
    lengths = np.stack([train[side].lengths[all_kept] for side in ("source", "target")], axis=1)
    # A small dataset with a large share is repeated more often than its number of examples tells.
    often = np.concatenate(
        [np.full(len(rows), float(weight) / max(len(rows), 1)) for rows, weight in zip(kept, loaded.mixture_weights)]
    )
    widths = bucket_widths(lengths, config.buckets, often / often.max()) if len(all_kept) else ()
    pairs = PairData(
        **vars(loaded),
        # The last are the maximal lengths themselves, which evaluation cuts to.
        widths=(*widths[:-1], (max_source, max_target)),
        max_source_length=max_source,
        max_target_length=max_target,
        kept=tuple(kept),
    )
    for side, limit in (("source", config.max_source_length), ("target", config.max_target_length)):
        if not limit:
            _warn_of_a_long_example(pairs, side)
    return pairs


def _warn_of_a_long_example(data: PairData, side: str) -> None:
    """Print where the longest example is, if it makes batches much wider than the others need."""
    lengths = data.encoded["train"][side].lengths
    longest, usual = int(lengths.max()), int(np.quantile(lengths, 0.99, method="lower"))
    if longest > max(4 * usual, _SHORT):
        print(
            f"the longest {side} has {longest:,} tokens ({locate(data, side, int(lengths.argmax()))}), and so wide are "
            f"batches; 99% have at most {usual:,}: --data.max_{side}_length leaves longer ones out of training"
        )
