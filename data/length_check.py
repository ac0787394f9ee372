"""Check that the model takes the lengths of the data, made where a line of a file can still be named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.locate import locate

if TYPE_CHECKING:
    from data.config import DataConfig
    from data.pairs import PairData
    from data.text import TextData


def check_lengths(config: DataConfig, most: int, data: PairData | TextData) -> None:
    """Raises ValueError where training data are longer than the model takes; names the example and the options.

    Args:
      most: the longest sequence of the model (`model.max_length`).
    """
    if "text" in data.tokenizers:
        if config.max_target_length > most:
            raise ValueError(
                f"rows of data.max_target_length={config.max_target_length} tokens are longer than "
                f"model.max_length={most}: lower the one or raise the other"
            )
        return
    for side, width in (("source", data.max_source_length), ("target", data.max_target_length)):
        if width > most:
            lengths = data.encoded["train"][side].lengths
            limit = getattr(config, f"max_{side}_length")
            what = (
                f"data.max_{side}_length={limit} is more"
                if limit
                else f"the longest {side} has {width} tokens ({locate(data, side, int(lengths.argmax()))}), more"
            )
            raise ValueError(
                f"{what} than model.max_length={most}: --data.max_{side}_length {most} leaves longer ones out of "
                "training, or raise --model.max_length"
            )
