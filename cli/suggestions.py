"""Suggestions for misspelt names."""

import difflib
from collections.abc import Collection


def did_you_mean(name: str, known: Collection[str], otherwise: str = "") -> str:
    """Return `"; perhaps you meant A or B"` with the at most three names that resemble `name`, or `otherwise`.

    Dotted names, `optimizer.peak_lr`, are compared as a whole and by their last part, so that an option without its
    section is found.
    """
    last = name.rpartition(".")[2]
    parts = {each: each.removeprefix("--").rpartition(".")[2] for each in known}
    close_parts = difflib.get_close_matches(last.removeprefix("--"), list(parts.values()), n=3, cutoff=0.6)
    near = [each for each, part in parts.items() if part == last.removeprefix("--")]
    near += difflib.get_close_matches(name, list(known), n=3, cutoff=0.7)
    near += [each for each, part in parts.items() if part in close_parts]
    near = list(dict.fromkeys(near))[:3]
    return f"; perhaps you meant {' or '.join(near)}" if near else otherwise
