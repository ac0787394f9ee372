"""The attention of a trained model for one text: an interactive page, and a picture of each layer.

    python -m reporting.attention runs/dates "2026년 11월 30일"               into attention/attention.html
    python -m reporting.attention runs/stdlib_char "def main():" --output maps --checkpoint best

An encoder–decoder reads the text and writes its best output; a language model reads the text.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli.options import parse_options
from cli.terminal import exit_on_error, fail, run_script

if TYPE_CHECKING:
    from analysis.attention_maps import AttentionMap
    from inference.trained_model import TrainedModel

PROGRAM = "python -m reporting.attention"


@dataclass(frozen=True)
class AttentionOptions:
    """Options of this script."""

    output: str = "attention"
    """Directory for attention.html and the pictures; files of these names in it are overwritten."""
    checkpoint: str = "last"
    """best, last, STEP, average:K (of the last K checkpoints) or ema (the moving average, of --train.ema)."""


def attention_of(trained: TrainedModel, text: str) -> dict[str, AttentionMap]:
    """Compute each kind of attention of the model for `text`.

    Raises:
      ValueError: the text is blank or too long, or a model of one's own sows no attention weights.
    """
    from inference.attention import text_attention
    from inference.translator import Translator

    if not text.strip():
        raise ValueError("the text is blank")
    if trained.is_language_model:
        return text_attention(trained, text)
    translator = Translator(trained)
    if (count := int(translator.encode([text]).lengths[0])) > translator.max_source_length:
        most = translator.max_source_length - 1
        raise ValueError(f"the text has {count - 1} tokens, the model reads at most {most}: {text[:60]!r}")
    return translator.attention(text)


def write_attention(maps: dict[str, AttentionMap], title: str, folder: Path) -> list[Path]:
    """Write `attention.html` and a picture of each layer of each kind into `folder`; return their paths."""
    from analysis.attention import attention_map, shortened
    from analysis.attention_page import attention_page
    from workdir.atomic_write import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "attention.html"]
    write_atomically(paths[0], attention_page(maps, title).encode("utf-8", "replace"))
    for kind, (weights, keys, queries) in maps.items():
        for number, layer in enumerate(weights, start=1):
            paths.append(folder / f"{kind}_layer_{number}.png")
            heading = f"{kind.replace('_', ' ')}, layer {number}: {shortened(title)}"
            attention_map(layer, keys, queries, paths[-1], heading, kind)
    return paths


def main() -> None:
    """Write the page and the pictures that the command line asks for."""
    words = sys.argv[1:]
    if {"-h", "--help"} & set(words):
        words = ["RUN", "TEXT", "--help"]
    if len(words) < 2 or words[0].startswith("-") or words[1].startswith("--"):
        fail(PROGRAM, f'wanted a run\'s directory and a text: {PROGRAM} runs/NAME "TEXT"')
    path, text, *rest = words
    try:
        options = parse_options(rest, AttentionOptions(), f"{PROGRAM} RUN TEXT", __doc__)
    except ValueError as error:
        fail(PROGRAM, error)
    from workdir.restore import load_run

    try:
        run = load_run(path)
        chosen = run.select_params(options.checkpoint)
    except ValueError as error:
        fail(PROGRAM, error)
    except OSError as error:
        fail(PROGRAM, error, 1)
    with exit_on_error(PROGRAM):
        maps = attention_of(run.trained_model(chosen.params), text)
        for written in write_attention(maps, text, Path(options.output)):
            print(written)


if __name__ == "__main__":
    run_script(main)
