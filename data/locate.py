"""Location of an example, file and line, for messages."""

from typing import TYPE_CHECKING

from data.sources.file_discovery import WHOLE
from data.sources.grammar import parse_source
from data.sources.local_corpus import LocalSource
from data.sources.text_files import read_lines

if TYPE_CHECKING:
    from data.pairs import PairData


def locate(data: "PairData", side: str, row: int) -> str:
    """Return where training example `row` has its text of `side`: `FILE, line N`, or else `example N of SOURCE`."""
    text = data.examples("train")[row][side]
    dataset, place = next((dataset, place) for dataset, place in data.examples_of("train") if row < place.stop)
    row -= place.start
    try:
        return _line(dataset.name, side, text) or f"example {row:,} of {dataset.name}"
    except ValueError:  # the files are gone, and their data were prepared before
        return f"example {row:,} of {dataset.name}"


def _line(name: str, side: str, text: str) -> str | None:
    source = parse_source(name)
    if source.kind not in ("tsv", "parallel"):
        return None
    local = LocalSource.find(source)
    paths = local.files["train" if "train" in local.files else WHOLE]
    nth = ("source", "target").index(side)
    column = int((source.direction or ("1", "2"))[nth]) - 1 if source.kind == "tsv" else None
    path = paths[0] if source.kind == "tsv" else paths[nth]
    for number, line in enumerate(read_lines(path), start=1):
        if line == text if column is None else line.split("\t")[column : column + 1] == [text]:
            return f"{path}, line {number}"
    return None
