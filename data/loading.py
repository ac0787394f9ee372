"""From a data config to batches: dicts of NumPy arrays, ready for the compiled step.

    pairs: {"inputs": {"source": int32 [B, S], "target": int32 [B, T]}, "labels": int32 [B, T], "weights": bool [B, T]}
    text:  {"inputs": {"tokens": int32 [B, T]},                         "labels": int32 [B, T], "weights": bool [B, T]}

For a source sentence x and its target y, `source` is x EOS, `target` (the decoder's input) BOS y, and `labels` y EOS,
all filled with PAD. `weights` is True where a label counts: up to EOS, which a model must learn, and never at PAD.
Packed documents have also "segments" and "positions" (int32 [B, T]) among their inputs, and batches for evaluation
"rows" (int32 [B]), the number of each row's example.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data.buckets import bucket_widths
from data.config import DataConfig
from data.dataset import tokenizer_file
from data.locate import locate
from data.mixture import resolve_mixture
from data.packing import join, pack
from data.pairs import PairData
from data.prepare import prepare
from data.sequences import Sequences, encode
from data.sources.fingerprint import fingerprint
from data.sources.memory import InMemoryDataset
from data.sources.records import check_split, read_columns
from data.text import TextData
from data.tokenizers.base import Tokenizer
from data.tokenizers.factory import load_tokenizer, make_tokenizers

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_SHORT = 128
"""Tokens of a sentence that nobody minds, however short the others are."""

Texts = dict[str, dict[str, list[str]]]
"""Split -> side -> texts."""


def load(config: DataConfig, tokenizers_from: str | Path | None = None) -> PairData | TextData:
    """Prepare, read and encode the dataset that `config` names.

    Tokenizers are trained on the training split, of a mixture on those of all sources together, or read from the
    directory `tokenizers_from`. Prints one line for each thing that does not go in whole: unknown characters in
    held-out splits, and examples that are too long. Raises ValueError with one line for whatever makes training
    impossible.
    """
    sources = resolve_mixture(config.source, lambda name: prepare(name, config.directory))
    return load_mixture(sources, config, tokenizers_from)


def load_from(
    builder: "tfds.core.DatasetBuilder", config: DataConfig, tokenizers_from: str | Path | None = None
) -> PairData | TextData:
    """`load` for a builder that is prepared already."""
    return load_mixture([(builder, Fraction(1))], config, tokenizers_from)


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
    sources: "Sequence[tuple[tfds.core.DatasetBuilder, Fraction]]",
    config: DataConfig,
    tokenizers_from: str | Path | None = None,
) -> PairData | TextData:
    """`load` for builders that are prepared already, each with its share of the batches (their sum is 1).

    All must be pairs, or all text. Held-out splits are those of all sources together, one source behind the other.
    """
    builders = tuple(builder for builder, _ in sources)
    sides = _sides(builders)
    for builder in builders:
        check_split(builder, "train")
    if sides == ("text",) and not config.max_target_length:
        raise ValueError("max_target_length, the length of a row, must be given for text")

    texts = [
        {split: read_columns(builder, split, sides) for split, info in builder.info.splits.items() if info.num_examples}
        for builder in builders
    ]
    tokenizers = _tokenizers(config, texts, sides, tokenizers_from)
    encoded: list[dict[str, dict[str, Sequences]]] = [
        {
            side: {
                split: encode(tokenizers[side], columns[side], f"{side} of {builder.name}, split {split}")
                for split, columns in of_builder.items()
            }
            for side in sides
        }
        for builder, of_builder in zip(builders, texts, strict=True)
    ]
    for builder, of_builder in zip(builders, encoded, strict=True):
        for side, of_split in of_builder.items():
            for split, sequences in of_split.items():
                if sequences.num_unknown:
                    print(f"{builder.name}, {split}: {sequences.num_unknown:,} tokens of {side} are unknown")
    splits = dict.fromkeys(split for of_builder in texts for split in of_builder)
    data = {
        "config": config,
        "builders": builders,
        "weights": tuple(weight for _, weight in sources),
        "tokenizers": tokenizers,
        "encoded": {
            side: {split: Sequences.joined([e[side][split] for e in encoded if split in e[side]]) for split in splits}
            for side in sides
        },
        "fingerprints": {
            builder.name: {split: fingerprint(columns) for split, columns in of_builder.items()}
            for builder, of_builder in zip(builders, texts, strict=True)
        },
    }
    return _lay_out_text(data, encoded) if sides == ("text",) else _fit_pairs(data, encoded)


def _sides(builders: "Sequence[tfds.core.DatasetBuilder]") -> tuple[str, ...]:
    found = []
    for builder in builders:
        names = set(builder.info.features)
        sides = next((sides for sides in (("source", "target"), ("text",)) if names.issuperset(sides)), None)
        if sides is None:
            raise ValueError(
                f"{builder.name} has features {', '.join(sorted(names))}; wanted: source and target, or text"
            )
        found.append(sides)
    if len(set(found)) > 1:
        kinds = ", ".join(f"{builder.name} has {' and '.join(sides)}" for builder, sides in zip(builders, found))
        raise ValueError(f"a mixture is of pairs, or of text, not of both: {kinds}")
    return found[0]


def _tokenizers(
    config: DataConfig, texts: Sequence[Texts], sides: tuple[str, ...], tokenizers_from: str | Path | None
) -> dict[str, Tokenizer]:
    if tokenizers_from:
        return {side: load_tokenizer(tokenizer_file(tokenizers_from, side)) for side in sides}
    return make_tokenizers(config, {side: [t for each in texts for t in each["train"][side]] for side in sides})


def _lay_out_text(data: dict[str, Any], encoded: Sequence[dict[str, dict[str, Sequences]]]) -> TextData:
    width, documents = data["config"].max_target_length, data["config"].packing == "documents"
    layout, sources = {}, ()
    for split, joined in data["encoded"]["text"].items():
        packings, begin = [], 0
        for builder, of_builder in zip(data["builders"], encoded, strict=True):
            if split not in of_builder["text"]:
                continue
            lengths = of_builder["text"][split].lengths
            long = int(np.count_nonzero(lengths > width))
            if documents and long:
                print(
                    f"{builder.name}, {split}: {long:,} of {len(lengths):,} documents are longer than {width} tokens "
                    "and are taken in pieces"
                )
            packings.append(pack(lengths if documents else lengths.sum(keepdims=True), width, begin))
            begin += int(lengths.sum())
        assert begin == len(joined.ids)
        layout[split] = join(packings)
        if split == "train":
            sources = tuple(map(len, packings))
    return TextData(**data, layout=layout, sources=sources)


def _fit_pairs(data: dict[str, Any], encoded: Sequence[dict[str, dict[str, Sequences]]]) -> PairData:
    config, train = data["config"], {side: of_split["train"] for side, of_split in data["encoded"].items()}
    max_source = config.max_source_length or int(train["source"].lengths.max())
    max_target = config.max_target_length or int(train["target"].lengths.max())
    kept, begin = [], 0
    for builder, of_builder in zip(data["builders"], encoded, strict=True):
        for split in of_builder["source"]:
            source, target = of_builder["source"][split].lengths, of_builder["target"][split].lengths
            fits = (source <= max_source) & (target <= max_target)
            if split == "train":
                kept.append(begin + np.flatnonzero(fits))
                begin += len(fits)
            if not fits.all():
                print(
                    f"{builder.name}, {split}: {np.count_nonzero(~fits):,} of {len(fits):,} examples are longer than "
                    f"{max_source} source or {max_target} target tokens and are "
                    + ("left out" if split == "train" else "cut")
                )
    all_kept = np.concatenate(kept)
    lengths = np.stack([train[side].lengths[all_kept] for side in ("source", "target")], axis=1)
    # A small source with a large share comes round more often than there are examples.
    often = np.concatenate(
        [np.full(len(rows), float(weight) / max(len(rows), 1)) for rows, weight in zip(kept, data["weights"])]
    )
    widths = bucket_widths(lengths, config.buckets, often / often.max()) if len(all_kept) else ()
    # The last are the limits themselves, which evaluation cuts to.
    widths = (*widths[:-1], (max_source, max_target))
    pairs = PairData(
        **data, max_source_length=max_source, max_target_length=max_target, kept=tuple(kept), widths=widths
    )
    for side, limit in (("source", config.max_source_length), ("target", config.max_target_length)):
        if not limit:
            _say_if_one_is_long(pairs, side)
    return pairs


def _say_if_one_is_long(data: PairData, side: str) -> None:
    """Without a limit the longest example makes whole batches as wide as itself."""
    lengths = data.encoded[side]["train"].lengths
    longest, usual = int(lengths.max()), int(np.quantile(lengths, 0.99, method="lower"))
    if longest > max(4 * usual, _SHORT):
        print(
            f"the longest {side} has {longest:,} tokens ({locate(data, side, int(lengths.argmax()))}), and so wide are "
            f"batches; 99% have at most {usual:,}: --data.max_{side}_length leaves longer ones out of training"
        )
