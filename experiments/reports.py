"""What a trained encoder–decoder answers, each answer beside all right ones: what reports score and show."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from experiments.experiment import Trained


class Outputs(NamedTuple):
    """Greedy outputs for the distinct sources of a split, in the order of their first lines."""

    sources: list[str]
    outputs: list[str]
    references: list[list[str]]
    """For each source all its targets in the split, as the tokenizer gives them back, each once."""


def decode_splits(trained: Trained) -> dict[str, Outputs]:
    """The outputs for every split but the one that was trained on.

    A source that stands in a split with several targets is one question with several right answers. A split whose
    targets are all blank, as those of a shared task may be, has none: a line says that it is left out.
    """
    from inference.translator import Translator

    translator = Translator(trained)
    canonical = trained.data.tokenizers["target"].canonical
    by_split = {}
    for split in trained.data.encoded["target"]:
        if split == "train":
            continue
        if not any(example["target"].strip() for example in trained.data.examples(split)):
            print(f"{split}: not scored, since all its targets are blank")
            continue
        found: dict[str, tuple[str, list[str]]] = {}
        for example, output in zip(trained.data.examples(split)[:], translator.split(trained.data, split), strict=True):
            references = found.setdefault(example["source"], (output, []))[1]
            if (reference := canonical(example["target"])) not in references:
                references.append(reference)
        outputs, references = zip(*found.values(), strict=True)
        by_split[split] = Outputs(list(found), list(outputs), list(references))
    return by_split


def show(some: Outputs, count: int = 5) -> None:
    """Print `count` outputs from all over the split, each with what would have been right unless it is."""
    for number in range(0, len(some.sources), max(len(some.sources) // count, 1))[:count]:
        output, right = some.outputs[number], some.references[number]
        verdict = "right" if output in right else f"not {' or '.join(right)}"
        print(f"  {some.sources[number]}  ->  {output}  ({verdict})")
