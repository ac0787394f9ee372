"""What a run's model was made for, written down when training starts: who uses the model needs no training data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data.loading import PairData, TextData
    from workdir.run_directory import RunDirectory

FILE_NAME = "limits.json"


@dataclass(frozen=True)
class DataSpec:
    """Sizes that depend on the data."""

    vocab_sizes: dict[str, int]
    """Of each side, source and target or text."""
    input_shapes: dict[str, tuple[int, ...]]
    """The model's inputs in the largest batch."""
    source_widths: tuple[int, ...]
    """Widths, narrow to wide, that sources were padded to, EOS counted; longer ones are cut. Text: ()."""
    max_target_length: int
    """Tokens of the longest target, EOS counted (text: of a row)."""


def spec_of(data: PairData | TextData) -> DataSpec:
    """Those of a model that is trained on `data`."""
    largest = max(data.blank_batches(), key=lambda batch: batch["labels"].size)
    pairs = "source" in data.tokenizers
    return DataSpec(
        vocab_sizes=data.vocab_sizes,
        input_shapes={name: x.shape for name, x in largest["inputs"].items()},
        source_widths=tuple(sorted({source for source, _ in data.widths})) if pairs else (),
        max_target_length=data.max_target_length if pairs else data.config.max_target_length,
    )


def save_spec(run: RunDirectory, spec: DataSpec) -> None:
    """Write `limits.json`, whole or not at all."""
    run.write(FILE_NAME, dataclasses.asdict(spec))


def read_spec(run: RunDirectory) -> DataSpec:
    """What `save_spec` wrote.

    Raises:
      ValueError: there is none: training has not begun, or was done before there were such files. Or it is damaged.
    """
    path = run.path / FILE_NAME
    if not path.exists():
        raise ValueError(f"{run.path} has no {FILE_NAME}: its training has not begun, or is of an older version")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        shapes = {name: tuple(shape) for name, shape in record["input_shapes"].items()}
        return DataSpec(record["vocab_sizes"], shapes, tuple(record["source_widths"]), record["max_target_length"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what training wrote: {type(error).__name__}: {error}") from error
