"""Decoding options of the command lines of generate.py and evaluate.py. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from numbers import Real

from data.seeds import check_seed
from model.float32 import complaint


@dataclass(frozen=True)
class DecodingOptions:
    """Options of greedy decoding (the default), beam search and sampling.

    Raises:
      ValueError: a value out of range, or an option without the one that it belongs to; in one line.
    """

    beam: int = 1
    """Hypotheses that beam search follows. 1: greedy decoding."""
    length_penalty: float = 0.6
    """α of beam search's ((5 + L) / 6)^α: 0 favours short outputs, more favours longer ones."""
    nbest: int = 1
    """How many of the beam's hypotheses to give, the best first."""
    sample: bool = False
    """Draw each token from the model's distribution instead of taking the most probable one."""
    temperature: float = 1.0
    """With sample: below 1 sharpens the distribution, 0 is greedy."""
    top_k: int = 0
    """With sample: draw from the k most probable tokens only. 0: from all."""
    top_p: float = 1.0
    """With sample: draw from the fewest tokens whose probability is p together."""
    seed: int = 0
    """With sample: what is drawn depends on the seed and the number of the line only."""
    suppress_unknown: bool = False
    """Never write the unknown token. Padding and the beginning of a sentence are never written."""
    max_tokens: int = 0
    """Tokens of an output at most, its end counted. 0: as in the longest training target; of a language model 500."""
    batch_size: int = 256
    """Lines that are decoded together, times the beam; fewer take less memory."""

    def __post_init__(self) -> None:
        check_seed(self.seed, "--seed")
        for name, least in (("beam", 1), ("nbest", 1), ("batch_size", 1), ("top_k", 0), ("max_tokens", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"--{name} must be a whole number, {least} or more, got {value!r}")
        for name, wanted, holds in (
            ("temperature", "a number, 0 or more", lambda x: x >= 0),
            ("top_p", "a number in (0, 1]", lambda x: 0 < x <= 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or not holds(value):
                raise ValueError(f"--{name} must be {wanted}, got {value!r}")
        # Sampling brings the two above into float32's range; an infinite exponent has no limit to be brought to.
        if wrong := complaint(self.length_penalty, lambda x: True):
            raise ValueError(f"--length_penalty must be a finite number, {wrong}")
        if self.nbest > self.beam:
            raise ValueError(f"--nbest {self.nbest} wants a beam at least as wide, got --beam {self.beam}")
        if self.sample and self.beam > 1:
            raise ValueError(f"--sample and --beam {self.beam} exclude each other")
        self._belongs(("temperature", "top_k", "top_p", "seed"), "--sample", self.sample)
        self._belongs(("length_penalty",), "--beam 2 or more", self.beam > 1)

    def _belongs(self, names: tuple[str, ...], owner: str, given: bool) -> None:
        defaults = {field.name: field.default for field in dataclasses.fields(DecodingOptions)}
        for name in names:
            if not given and getattr(self, name) != defaults[name]:
                raise ValueError(f"--{name} {getattr(self, name)} has no effect without {owner}")

    @property
    def decoding(self) -> DecodingOptions:
        """Return the decoding options alone, of a script that has more."""
        names = [field.name for field in dataclasses.fields(DecodingOptions)]
        return DecodingOptions(**{name: getattr(self, name) for name in names})

    @property
    def suppress_ids(self) -> tuple[int, ...]:
        """Return the ids that are never output; the others share their probability."""
        from data.tokenizers.base import BOS, PAD, UNK

        return (PAD, BOS, UNK) if self.suppress_unknown else (PAD, BOS)

    @property
    def name(self) -> str:
        """Return a file name of all that may change an output: `greedy`, `beam4-penalty0.6`, `sample-seed1-top_k40`."""
        if self.sample:
            name = f"sample-seed{self.seed}"
            defaults = DecodingOptions()
            for option in ("temperature", "top_k", "top_p"):
                if getattr(self, option) != getattr(defaults, option):
                    name += f"-{option}{getattr(self, option)}"
        else:
            name = f"beam{self.beam}-penalty{self.length_penalty}" if self.beam > 1 else "greedy"
        name += "-suppress_unknown" if self.suppress_unknown else ""
        return name + (f"-max_tokens{self.max_tokens}" if self.max_tokens else "")
