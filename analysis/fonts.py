"""The fonts of the figures: DejaVu Sans, with a Hangul font to fall back on."""

import functools
import importlib.util
import warnings
from pathlib import Path

from matplotlib import font_manager

HANGUL_PACKAGE = "koreanize_matplotlib"
"""A pip package that carries the font NanumGothic. Only its file is used: importing it fails on Python >= 3.12."""


@functools.cache
def font_families() -> list[str]:
    """Return font families for matplotlib's `font.family`: a glyph is taken from the first one that has it.

    Without the Hangul font figures are drawn all the same, and one warning says what they lack.
    """
    package = importlib.util.find_spec(HANGUL_PACKAGE)  # finds a top-level package without running it
    for folder in package.submodule_search_locations or [] if package else []:
        font = Path(folder) / "fonts" / "NanumGothic.ttf"
        if font.exists():
            font_manager.fontManager.addfont(font)
            return ["DejaVu Sans", "NanumGothic"]
    warnings.warn(f"figures cannot draw Hangul: install {HANGUL_PACKAGE.replace('_', '-')}", stacklevel=2)
    return ["DejaVu Sans"]
