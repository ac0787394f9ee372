"""The notebooks, executed by a real kernel with small settings."""

import base64
import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
LARGEST = 600_000
"""Bytes of a notebook with its outputs."""


def execute(name: str, parameters: str) -> list[nbformat.NotebookNode]:
    """Run the notebook with its one cell of parameters replaced; return its cells of code."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    assert len(cells) == 1
    cells[0].source = parameters
    context = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=400, kernel_name="python3", resources=context).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(cell: nbformat.NotebookNode) -> str:
    """What a cell printed and showed as text."""
    printed = [output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"]
    return "".join(printed)


def pictures_of(cell: nbformat.NotebookNode) -> list[bytes]:
    return [
        base64.b64decode(output.data["image/png"]) for output in cell.outputs if "image/png" in output.get("data", {})
    ]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_small_and_whole(path):
    assert path.stat().st_size < LARGEST
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    text = json.dumps(notebook, ensure_ascii=False)
    assert not any(folder in text for folder in (str(Path.home()), str(FOLDER.parent), "Traceback"))
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run it whole, from a new kernel, and commit it with its outputs"


@pytest.fixture
def quickstart(tmp_path):
    """Small parameters for the notebook; its runs are kept in the test's own directory."""
    small = '"--model.d_model", "16", "--model.d_ff", "16", "--data.buckets", "1"'
    sweep = '"--model.d_model", "16", "--model.num_heads", "2", "--model.d_ff", "16", "--data.batch_size", "8"'
    return f"""
REPOSITORY = "nowhere"
RUNS = {str(tmp_path)!r}
OPTIONS = ["--train.steps", "4", "--train.evaluate_every", "4", "--train.report", "True", {small}]
SWEEP_OPTIONS = ["--train.steps", "4", {sweep}]
"""


def test_quickstart(quickstart, tmp_path):
    cells = execute("quickstart.ipynb", quickstart)
    texts = [text_of(cell) for cell in cells]
    assert "installed: nothing, it is all here" in texts[1] and "backend cpu: 1 × cpu" in texts[1]
    assert "dates: trained in" in texts[2]
    assert any("step 4/4" in str(output) for output in cells[2].outputs), "live progress"
    pictures = [picture for cell in cells for picture in pictures_of(cell)]
    assert len(pictures) == 3 and all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert texts[4].count("log probability") == 4
    assert (tmp_path / "attention" / "attention.html").exists() and "attention.html" in texts[5]
    assert len((tmp_path / "rates" / "trials.csv").read_text().splitlines()) == 1 + 8


@pytest.mark.slow
def test_quickstart_again_as_after_a_disconnect(quickstart):
    execute("quickstart.ipynb", quickstart)
    again = execute("quickstart.ipynb", quickstart)
    assert "holds this run, finished after 4 steps" in text_of(again[2])


def source_of(name: str, number: int) -> str:
    """The code of a notebook's cell, of those that hold code."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == "code"][number].source


def test_both_notebooks_are_set_up_alike():
    setup = source_of("transformer.ipynb", 1)
    assert "check_env()" in setup and source_of("quickstart.ipynb", 1).startswith(setup)


def number_after(text: str, phrase: str) -> float:
    """The number that follows a phrase in what was printed."""
    return float(re.search(re.escape(phrase) + r"\s*(-?[\d,.]*\d(?:e[+-]\d+)?)", text)[1].replace(",", ""))


def test_transformer():
    """Each section shows the functions of the codebase, a picture, and where a number makes the point, that number."""
    cells = execute("transformer.ipynb", 'REPOSITORY = "nowhere"\nSTEPS = 100')
    outputs = [output.get("data", {}) for cell in cells for output in cell.outputs]
    shown = "".join(data.get("text/markdown", "") for data in outputs)
    for name in ("attention_scores", "multi_head_attention", "sinusoidal_positions", "encoder_block", "causal_mask"):
        assert f"def {name}(" in shown
    text = "".join(text_of(cell) for cell in cells)
    assert number_after(text, "variance at d_k = 1024:") == pytest.approx(1024, rel=0.03)
    assert number_after(text, "unscaled,") == pytest.approx(1, rel=0.03)
    assert number_after(text, "before attention:") == 0 and number_after(text, "after attention:") > 1
    assert number_after(text, "without positions, the largest difference of a word's vectors:") < 1e-5
    assert number_after(text, "with positions, the largest difference of a word's vectors:") > 0.1
    assert re.search(r"equal, bit for bit, at positions 0 1 2 3 4 5 6 7\n", text)
    assert number_after(text, "\nall") == pytest.approx(63e6, rel=0.01)
    assert number_after(text, "gradient from p − target:") < 1e-6
    assert number_after(text, "at the first step,") < 0.5 * number_after(text, "loss:")
    assert sum(len(pictures_of(cell)) for cell in cells) == 11
