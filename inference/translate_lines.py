"""Translation of text files line by line, for generate.py: one output line for each input line, in order."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from cli.terminal import log
from data.sequences import Sequences
from data.sources.text_files import one_line
from data.tokenizers.base import UNK, Tokenizer
from inference.generation_config import DecodingOptions
from inference.translator import Hypothesis, Translator

if TYPE_CHECKING:
    from inference.trained_model import TrainedModel

AT_A_TIME = 8
"""Batches of lines that are decoded, written out and reported together."""


def translate_lines(
    model: TrainedModel,
    options: DecodingOptions,
    source: BinaryIO,
    target: BinaryIO,
    *,
    scores: bool = False,
    maps: Path | None = None,
    first: int = 0,
) -> None:
    """Decode the lines of `source` into `target`; warn on stderr of cut, unknown and unfinished lines.

    A line ends at LF; a CR before it belongs to no line, and the last line counts without LF too. Without options one
    line is written for each, an empty one for a blank one, which is not decoded. With `scores`, `SCORE TAB TEXT`. With
    n best the n-best lists of machine translation, `LINE ||| TEXT ||| SCORE`, lines counted from 0, the best first, and
    ` ||| unfinished` behind an output that has no end; a blank line has one, empty, with score 0. Line breaks that a
    model writes into its output are written as spaces.

    Args:
      maps: directory for a picture of the attention of each line that is not blank, `line-1.png` and so on, from 1.
      first: number of the first line, which what is sampled depends on.

    Raises:
      ValueError: the input is not UTF-8; nothing has been decoded then.
    """
    lines = decode_input(source)
    translator = Translator(model, options.decoding, scores=scores)
    real = [number for number, line in enumerate(lines) if line.strip()]
    sources = translator.encode([lines[number] for number in real])
    _report_input(translator, model.tokenizers["source"], sources, lines, real, first)
    written, unfinished, broken = 0, [], []
    size = AT_A_TIME * options.batch_size
    for begin in range(0, len(real), size):
        numbers = np.array(real[begin : begin + size])
        progress = _Progress(begin, len(real))
        found = translator.hypotheses(_part(sources, begin, begin + len(numbers)), first + numbers, progress)
        for number, best in zip(numbers.tolist(), found, strict=True):
            _write_blank(target, first + written, first + number, options.nbest)
            written = number + 1
            if not best[0].finished:
                unfinished.append(number)
            if any(each.text != one_line(each.text) for each in best):
                broken.append(number)
            target.write(b"".join(_formatted(first + number, best, options.nbest, scores)))
            if maps is not None:
                _draw(translator, lines[number], best[0], maps / f"line-{number + 1}.png")
        target.flush()
    _write_blank(target, first + written, first + len(lines), options.nbest)
    target.flush()
    if unfinished:
        log(f"cut off after {translator.max_tokens} tokens, no end in sight: {_lines(unfinished, first)}")
    if broken:
        log(f"line breaks in the output, written as spaces: {_lines(broken, first)}")


def translate_interactively(
    model: TrainedModel, options: DecodingOptions, source: BinaryIO, target: BinaryIO, *, scores: bool = False
) -> None:
    """Answer each line of `source` as soon as it is there, until its end: for a terminal, or a pipe that stays open.

    As `translate_lines`, but for a line that is not UTF-8: it is reported, and answered as a blank one.
    """
    for number, line in read_lines(source):
        translate_lines(model, options, io.BytesIO(line), target, scores=scores, first=number)


def read_lines(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield each line of `source` with its number, from 0, as it arrives; one that is not UTF-8 is logged and blank."""
    for number, line in enumerate(iter(source.readline, b"")):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            log(
                f"line {number + 1}: byte {line[error.start]:#04x} is not UTF-8 text; the line is taken for a blank one"
            )
            line = b"\n"
        yield number, line


def decode_input(source: BinaryIO) -> list[str]:
    """Return the lines of `source`, without their ends.

    Raises ValueError, which names the line, for what is not UTF-8.
    """
    raw = source.read().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not raw[-1]:
        raw.pop()  # what follows the last newline
    lines = []
    for number, line in enumerate(raw, start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"line {number} of the input: byte {line[error.start]:#04x} is not UTF-8 text") from None
    return lines


def unknown_characters(tokenizer: Tokenizer, lines: Sequence[str]) -> str:
    """Return `: '☃', 'ʬ'` where tokens are characters, otherwise nothing."""
    if tokenizer.kind != "characters":
        return ""
    found = sorted({c for line in lines for c in tokenizer.canonical(line) if tokenizer.encode(c)[0] == UNK})
    return ": " + ", ".join(map(repr, found[:10])) + (f" and {len(found) - 10} more" if len(found) > 10 else "")


def _report_input(
    translator: Translator, tokenizer: Tokenizer, sources: Sequences, lines: list[str], real: list[int], first: int
) -> None:
    if blank := len(lines) - len(real):
        log(f"{blank:,} of {len(lines):,} lines are blank and stay so")
    longest = translator.max_source_length
    long = [real[n] for n in np.flatnonzero(sources.lengths > longest)]
    if long:
        log(f"cut to the {longest - 1} tokens that the model reads at most: {_lines(long, first)}")
    if sources.num_unknown:
        at = np.searchsorted(sources.offsets, np.flatnonzero(sources.ids == UNK), side="right") - 1
        numbers = [real[n] for n in np.unique(at)]
        characters = unknown_characters(tokenizer, [lines[number] for number in numbers])
        log(f"{sources.num_unknown:,} tokens that the training data lack, in {_lines(numbers, first)}{characters}")


def _formatted(number: int, best: list[Hypothesis], nbest: int, scores: bool) -> list[bytes]:
    rows = []
    for each in best:
        text = one_line(each.text)
        if nbest > 1:
            text = f"{number} ||| {text} ||| {each.score:.4f}" + ("" if each.finished else " ||| unfinished")
        elif scores:
            text = f"{each.score:.4f}\t{text}"
        rows.append(f"{text}\n".encode("utf-8", "replace"))
    return rows


def _write_blank(target: BinaryIO, begin: int, end: int, nbest: int) -> None:
    for number in range(begin, end):
        target.write(f"{number} |||  ||| 0.0000\n".encode() if nbest > 1 else b"\n")


def _part(sources: Sequences, begin: int, end: int) -> Sequences:
    offsets = sources.offsets[begin : end + 1]
    return Sequences(sources.ids[offsets[0] : offsets[-1]], offsets - offsets[0], 0)


def _draw(translator: Translator, line: str, best: Hypothesis, path: Path) -> None:
    from analysis.attention import attention_map, shortened

    weights, source, target = translator.attention(line, best.tokens)["decoder_cross_attention"]
    attention_map(weights[-1], source, target, path, f"Where the last decoder layer looks: {shortened(line)}")


def _lines(numbers: Sequence[int], first: int) -> str:
    """Format line numbers, `lines 1, 5 and 3 more`, counted from 1 if the first has number 0."""
    shown = ", ".join(str(first + number + 1) for number in numbers[:10])
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"line{'s' if len(numbers) > 1 else ''} {shown}{more}"


class _Progress:
    """A counter on stderr, where somebody looks at it."""

    def __init__(self, before: int, total: int) -> None:
        self._before, self._total = before, total

    def __call__(self, done: int) -> None:
        if sys.stderr is not None and sys.stderr.isatty() and self._total > 1:
            now = self._before + done
            print(f"\r{now:,} of {self._total:,} lines", end="\n" if now == self._total else "", file=sys.stderr)
