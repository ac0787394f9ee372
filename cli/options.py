"""Typed options, from the words of a command line and from JSON: trees of dataclasses with some fields changed.

The help text is tyro's. Words are parsed here, since tyro reports an error in a frame of several lines and reads the
text "None" as the value None.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from cli.suggestions import did_you_mean
from cli.terminal import fail

Options = TypeVar("Options")
WANTED = {bool: "True or False", int: "a whole number", float: "a number", str: "text", NoneType: "None"}


def parse_options(words: list[str], default: Options, program: str, doc: str, kind: Any = None) -> Options:
    """Return `default`, a dataclass of dataclasses, with the fields that `words` set, each as --section.option VALUE.

    A value is the next word, unless that begins with --, or what follows =. A boolean option may be given alone, for
    True. An option given twice has its last value. -h or --help prints the help text and exits with status 0.

    Args:
      program: the program's name in the help text.
      doc: the description in the help text.
      kind: the type of `default`, if it is a generic dataclass with its type arguments. None: `type(default)`.

    Raises:
      ValueError: an unknown option; a value that is missing, or of another type than its field, or that the dataclass
        refuses; in one line.
    """
    if "-h" in words or "--help" in words:
        if sys.stdout is None:
            raise ValueError("--help wants an open stdout to be written to")
        import tyro  # imported for a help text only, since it takes a quarter of a second

        tyro.cli(
            kind or type(default), prog=program, description=doc, default=default, args=["--help"], use_underscores=True
        )
    kinds, values, rest = option_types(default, "--"), {}, list(words)
    while rest:
        word = rest.pop(0)
        flag, has_value, text = word.partition("=")
        if not flag.startswith("--"):
            raise ValueError(f"unknown word {word!r}: options are given as --option VALUE")
        if flag not in kinds:
            raise ValueError(f"unknown option {flag}{did_you_mean(flag, kinds, '; --help shows them all')}")
        wanted = wanted_text(kinds[flag])
        if not has_value and rest and not rest[0].startswith("--"):
            text = rest.pop(0)
        elif not has_value and kinds[flag] is bool:
            text = "True"
        elif not has_value:
            raise ValueError(f"{flag} must be {wanted}, got nothing (what begins with -- is given as {flag}=--...)")
        try:
            values[flag] = value_from_text(text, kinds[flag])
        except ValueError:
            raise ValueError(f"{flag} must be {wanted}, got {text!r}") from None
    return with_options(default, values, "--")


def options_from_json(record: Mapping[str, Any], default: Options) -> Options:
    """Return `default`, a dataclass of dataclasses, with the values of `record`: a dict of dicts, as JSON has it.

    Raises:
      ValueError: an unknown key, a value of another type than its field, or one that the dataclass refuses; in one
        line.
    """
    kinds, values = option_types(default), {}

    def read(record: Mapping[str, Any], section: Any, prefix: str) -> None:
        names = [field.name for field in dataclasses.fields(section)]
        for key, value in record.items():
            name = prefix + key
            if key not in names:
                raise ValueError(f"unknown key {name}{did_you_mean(name, kinds)}")
            if name in kinds:
                values[name] = _from_json(value, kinds[name], name)
            elif isinstance(value, dict):
                read(value, getattr(section, key), f"{name}.")
            else:
                raise ValueError(f"{name} must be a section of options, got {value!r}")

    read(record, default, "")
    return with_options(default, values)


def parse_run(program: str, doc: str, words: list[str], default: Options) -> tuple[str, Options]:
    """Return the run directory that `words` begin with, and `default` with the options that follow it.

    Exits with status 0 after a help text, 2 after one line about what was wrong.
    """
    if {"-h", "--help"} & set(words):
        words = ["RUN", "--help"]
    if not words or words[0].startswith("-"):
        fail(program, f"wanted a run's directory first, {program} runs/NAME; --help shows the options")
    run, options = words[0], words[1:]
    try:
        return run, parse_options(options, default, f"{program} {run}", doc)
    except ValueError as error:
        fail(program, error)


def option_types(config: Any, prefix: str = "") -> dict[str, Any]:
    """Return the type of each option of `config`, a dataclass of dataclasses, by its full name after `prefix`."""
    kinds: dict[str, Any] = {}
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            kinds |= option_types(value, f"{prefix}{field.name}.")
        else:
            kinds[prefix + field.name] = hints[field.name]
    return kinds


def value_from_text(text: str, kind: Any) -> Any:
    """Parse `text` as a value of type `kind`. Raises ValueError if it is none."""
    if get_origin(kind) is UnionType:
        for each in get_args(kind):
            try:
                return value_from_text(text, each)
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


def _from_json(value: Any, kind: Any, name: str) -> Any:
    """Check that `value` is of type `kind`; a whole number is a float too, but True and False are no numbers."""
    kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    for each in kinds:
        if get_origin(each) is Literal and type(value) is str and value in get_args(each):
            return value
        if type(value) is each:
            return value
        if each is float and type(value) is int:
            return float(value)
    raise ValueError(f"{name} must be {wanted_text(kind)}, got {value!r}")


def wanted_text(kind: Any) -> str:
    """Return what a value of type `kind` is, for a message: "a whole number"."""
    if get_origin(kind) is UnionType:
        return " or ".join(map(wanted_text, get_args(kind)))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, get_args(kind)))}"
    return WANTED[kind]


def with_options(config: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Return `config` with the options that `values` has, by full name. Raises ValueError, as the dataclasses do."""
    changes = {}
    for field in dataclasses.fields(config):
        name, old = prefix + field.name, getattr(config, field.name)
        if dataclasses.is_dataclass(old):
            changes[field.name] = with_options(old, values, f"{name}.")
        elif name in values:
            changes[field.name] = values[name]
    try:
        return dataclasses.replace(config, **changes)
    except ValueError as error:
        # The dataclasses name a field by its last part only.
        named = str(error).partition(" ")[0] in {field.name for field in dataclasses.fields(config)}
        raise ValueError(f"{prefix}{error}" if named else str(error)) from error
