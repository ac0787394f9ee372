"""The words of a command line, held against the config whose fields they set: strict, and with the near ones named."""

import dataclasses
import difflib
from typing import Any


def check_options(options: list[str], config: Any) -> list[str]:
    """The same options as tyro takes them, every name known, yes-or-no ones as --section.option or --section.no_option.

    `config` is the dataclass, of dataclasses, whose fields are the options.

    Raises:
      ValueError: an option that does not exist, or a yes-or-no option with a value that is neither.
    """
    flags, words, rest = _flags(config), [], list(options)
    while rest:
        word = rest.pop(0)
        flag, has_value, value = word.partition("=")
        if not flag.startswith("--") or word == "--help":
            words.append(word)
            continue
        if flag not in flags:
            raise ValueError(f"unknown option {flag}{_near(flag, list(flags))}")
        if flags[flag] is bool:
            if not has_value:
                value = rest.pop(0) if rest and not rest[0].startswith("--") else "True"
            if value.lower() not in ("true", "false"):
                raise ValueError(f"{flag} must be True or False, got {value!r}")
            section, dot, last = flag.removeprefix("--").rpartition(".")
            word = flag if value.lower() == "true" else f"--{section}{dot}no_{last}"
        words.append(word)
    return words


def _flags(config: Any, prefix: str = "--") -> dict[str, type]:
    """Every option by its full name, with the type of its value."""
    flags: dict[str, type] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            flags |= _flags(value, f"{prefix}{field.name}.")
        else:
            flags[prefix + field.name] = type(value)
    return flags


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
