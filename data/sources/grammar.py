"""What `--data.source` may say, taken apart. No file is looked at here.

    NAME                           a dataset of ours: dates, reverse, stdlib
    tfds:NAME[/CONFIG][:VERSION]   a TFDS dataset that `python -m data.prepare` has prepared
    text:PATH                      plain text, for a language model
    tsv:PATH                       a pair a line: source TAB target
    parallel:PREFIX                two files, line n of one belongs to line n of the other

What follows a last colon says which is the source and which the target: `tfds:wmt14_translate/de-en:en-de` and
`parallel:PREFIX:en-de` by language, `tsv:PATH:2-1` by column, counted from 1. `file_discovery` says which files PATH
and PREFIX may stand for.
"""

import re
from dataclasses import dataclass

KINDS = ("tfds", "text", "tsv", "parallel")
GRAMMAR = "tfds:NAME[/CONFIG], text:PATH, tsv:PATH, parallel:PREFIX"

_DIRECTION = re.compile(r"(?P<name>.+):(?P<source>\w+)-(?P<target>\w+)")


@dataclass(frozen=True)
class Source:
    """A data source, by its parts."""

    kind: str
    """One of `KINDS`, or "builder" for a bare name."""
    name: str
    """Name of the builder or the TFDS dataset, or the path, as given."""
    direction: tuple[str, str] | None = None
    """Source and target, as languages or column numbers, where they were given."""

    def __str__(self) -> str:
        kind = "" if self.kind == "builder" else f"{self.kind}:"
        return f"{kind}{self.name}" + (f":{self.direction[0]}-{self.direction[1]}" if self.direction else "")


def parse_source(text: str) -> Source:
    """The parts of `text`. Raises ValueError for what the grammar does not know."""
    kind, colon, name = text.partition(":")
    if not colon:
        return Source("builder", text)
    if kind not in KINDS:
        raise ValueError(f"unknown kind of data {kind!r} in {text!r}: there are {GRAMMAR}")
    match = _DIRECTION.fullmatch(name)
    direction = (match["source"], match["target"]) if match and kind != "text" else None
    if direction:
        name = match["name"]
    if not name:
        raise ValueError(f"{text!r} names nothing after the colon: there are {GRAMMAR}")
    if direction and direction[0] == direction[1]:
        raise ValueError(f"{text!r}: source and target are both {direction[0]}")
    if kind == "tsv" and direction and not all(part.isdecimal() and int(part) for part in direction):
        raise ValueError(f"{text!r}: columns are numbers from 1 on, as in tsv:{name}:2-1")
    return Source(kind, name, direction)
