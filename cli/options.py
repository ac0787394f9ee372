"""From the words of a command line to a config: strict, typed, and with the near ones named.

The help text is tyro's. The words are read here, since tyro answers a wrong one with a frame of several lines, and
takes the text "None" for none.
"""

import dataclasses
import difflib
import sys
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Options = TypeVar("Options")
WANTED = {bool: "True or False", int: "a whole number", float: "a number", str: "text", NoneType: "None"}


def parse_options(words: list[str], default: Options, program: str, doc: str, kind: Any = None) -> Options:
    """`default`, a dataclass of dataclasses, with the fields that `words` set, each as --section.option VALUE.

    A value is the next word, unless that begins with --, or what follows =. A yes-or-no option may stand alone, for
    True. Of an option that is given twice, the last counts. With -h or --help among the words it prints the help text
    and exits with status 0.

    Args:
      program: what the help text calls it.
      doc: what the help text begins with.
      kind: the dataclass, where it is a generic one, with its types. None: that of `default`.

    Raises:
      ValueError: an option that does not exist; a value that is missing, or of another type than its field, or that
        the config refuses; in one line.
    """
    if "-h" in words or "--help" in words:
        if sys.stdout is None:
            raise ValueError("--help wants an open stdout to be written to")
        import tyro  # here: who wants no help need not wait for it

        tyro.cli(
            kind or type(default), prog=program, description=doc, default=default, args=["--help"], use_underscores=True
        )
    kinds, values, rest = _kinds(default), {}, list(words)
    while rest:
        word = rest.pop(0)
        flag, has_value, text = word.partition("=")
        if not flag.startswith("--"):
            raise ValueError(f"unknown word {word!r}: options are given as --option VALUE")
        if flag not in kinds:
            raise ValueError(f"unknown option {flag}{_near(flag, list(kinds))}")
        wanted = _wanted(kinds[flag])
        if not has_value and rest and not rest[0].startswith("--"):
            text = rest.pop(0)
        elif not has_value and kinds[flag] is bool:
            text = "True"
        elif not has_value:
            raise ValueError(f"{flag} must be {wanted}, got nothing (what begins with -- is given as {flag}=--...)")
        try:
            values[flag] = _read(text, kinds[flag])
        except ValueError:
            raise ValueError(f"{flag} must be {wanted}, got {text!r}") from None
    return _replaced(default, values)


def _kinds(config: Any, prefix: str = "--") -> dict[str, Any]:
    """Every option by its full name, with the type of its field."""
    kinds: dict[str, Any] = {}
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            kinds |= _kinds(value, f"{prefix}{field.name}.")
        else:
            kinds[prefix + field.name] = hints[field.name]
    return kinds


def _read(text: str, kind: Any) -> Any:
    """The value that `text` spells. Raises ValueError if it spells none of this type."""
    if get_origin(kind) is UnionType:
        for each in get_args(kind):
            try:
                return _read(text, each)
            except ValueError:
                continue
        raise ValueError(text)
    if kind in (int, float, str):
        return kind(text)
    if get_origin(kind) is Literal:
        choices = {choice: choice for choice in get_args(kind)}
    elif kind is bool:
        text, choices = text.lower(), {"true": True, "false": False}
    else:
        choices = {"None": None}
    if text not in choices:
        raise ValueError(text)
    return choices[text]


def _wanted(kind: Any) -> str:
    if get_origin(kind) is UnionType:
        return " or ".join(map(_wanted, get_args(kind)))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    return WANTED[kind]


def _replaced(config: Any, values: dict[str, Any], prefix: str = "--") -> Any:
    """`config` with these values, which its dataclasses check. They know their fields by their last names only."""
    changes = {}
    for field in dataclasses.fields(config):
        flag, old = prefix + field.name, getattr(config, field.name)
        if dataclasses.is_dataclass(old):
            changes[field.name] = _replaced(old, values, f"{flag}.")
        elif flag in values:
            changes[field.name] = values[flag]
    try:
        return dataclasses.replace(config, **changes)
    except ValueError as error:
        named = str(error).partition(" ")[0] in {field.name for field in dataclasses.fields(config)}
        raise ValueError(f"{prefix}{error}" if named else str(error)) from error


def _near(flag: str, flags: list[str]) -> str:
    """The options that a misspelt one may have meant, by full name or by last name."""
    last = flag.removeprefix("--").rpartition(".")[2]
    names = {known: known.removeprefix("--").rpartition(".")[2] for known in flags}
    near = [known for known, name in names.items() if name == last]
    near += difflib.get_close_matches(flag, flags, n=3, cutoff=0.7)
    close_names = difflib.get_close_matches(last, list(names.values()), n=3, cutoff=0.6)
    near += [known for known, name in names.items() if name in close_names]
    near = list(dict.fromkeys(near))[:3]
    return f"; perhaps you meant {' or '.join(near)}" if near else "; --help shows them all"
