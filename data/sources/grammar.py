"""Grammar of `--data.source`. No file is read here.

    NAME                           a dataset of ours: dates, reverse, stdlib
    tfds:NAME[/CONFIG][:VERSION]   a TFDS dataset that `python -m data.prepare` has prepared
    text:PATH                      plain text, for a language model
    tsv:PATH                       a pair a line: source TAB target
    parallel:PREFIX                two files, line n of one belongs to line n of the other

What follows a last colon says which is the source and which the target: `tfds:wmt14_translate/de-en:en-de` and
`parallel:PREFIX:en-de` by language, `tsv:PATH:2-1` by column, counted from 1. `file_discovery` says which files PATH
and PREFIX name. Several sources with weights, `A=0.7,B=0.3`, are a mixture.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

T = TypeVar("T")

KINDS = ("tfds", "text", "tsv", "parallel")
GRAMMAR = "tfds:NAME[/CONFIG], text:PATH, tsv:PATH, parallel:PREFIX"

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_BEGINNING = rf"\s*(?:(?:{'|'.join(KINDS)}):|\w+\s*(?:[=,]|$)|$)"
"""What may follow the comma: KIND: or a bare name."""
_PART = re.compile(rf"(.*?)=\s*({_NUMBER})\s*(?:$|,(?={_BEGINNING}))", re.DOTALL)
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
    """Parse `text` into its parts. Raises ValueError for what the grammar does not know."""
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


def parse_mixture(text: str) -> list[tuple[str, Fraction]]:
    """Parse `A=0.7,B=0.3` as [("A", 7/10), ("B", 3/10)]; without a weight at its end, `text` is one source.

    Weights are positive numbers, and are divided by their sum; one source alone has none. A path may have commas and
    equals signs: sources are divided only where `=NUMBER,` is followed by what begins one, `KIND:` or a bare name (so a
    file `lr=1,dates` has to be renamed). Raises ValueError, in one line, for a weight that is not positive, a source
    twice or without a name, and a last one without a weight.
    """
    parts, at = [], 0
    while match := _PART.match(text, at):
        parts.append((match[1].strip(), Fraction(match[2])))
        at = match.end()
    if not parts or (len(parts) == 1 and at == len(text) and not text.endswith(",")):
        return [(text, Fraction(1))]
    if at < len(text) or text.endswith(","):
        raise ValueError(f"mixture {text!r}: {text[at:]!r} has no weight; wanted SOURCE=WEIGHT,SOURCE=WEIGHT")
    names = [name for name, _ in parts]
    for name, weight in parts:
        if not name:
            raise ValueError(f"mixture {text!r}: a weight without a source; wanted SOURCE=WEIGHT,SOURCE=WEIGHT")
        if weight <= 0:
            raise ValueError(f"mixture {text!r}: the weight of {name} must be positive, not {float(weight):g}")
        if names.count(name) > 1:
            raise ValueError(f"mixture {text!r}: {name} is there {names.count(name)} times")
    total = sum(weight for _, weight in parts)
    return [(name, weight / total) for name, weight in parts]


def resolve_mixture(text: str, resolve: Callable[[str], T]) -> list[tuple[T, Fraction]]:
    """Parse a mixture and apply `resolve` to each source's name."""
    return [(resolve(name), weight) for name, weight in parse_mixture(text)]
