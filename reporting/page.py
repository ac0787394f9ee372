"""The page of a finished run, `report.html`: one file that opens from disk, without a network."""

from __future__ import annotations

import base64
import html
import importlib.metadata
import json
import platform
import shlex
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reporting.run_summary import summarize
from workdir.atomic_write import write_atomically

if TYPE_CHECKING:
    from evaluation.evaluate_split import ScoredExample

FILE_NAME = "report.html"
PACKAGES = ("jax", "flax", "optax", "orbax-checkpoint", "numpy")
SAMPLES = 10
"""Outputs that are shown of each kind, right and wrong."""
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; } img { max-width: 100%; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; } pre { background: #f3f3f3; padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
td { overflow-wrap: anywhere; } .wrong { color: #a33; } .right { color: #067; }
"""


def write_page(
    path: Path, figures: Mapping[str, Path], samples: Sequence[ScoredExample] = (), devices: Sequence[str] = ()
) -> Path:
    """Write `report.html` for the finished run in directory `path`, and return its path.

    It has the results, the curves, the throughput, samples right and wrong, the environment, the config and the command
    that trains the run again. All text of the data is escaped.

    Args:
      figures: pictures (PNG) by name.
      samples: scored examples of a held-out split.
      devices: what the run was trained on, as text.

    Raises:
      ValueError: a file of the run is damaged; names it.
    """
    run = summarize(path)
    numbers = {name: value for name, value in (run.result or {}).items() if isinstance(value, int | float)}
    speed = [row["tokens_per_second"] for row in run.rows if "tokens_per_second" in row]
    throughput = f"{statistics.median(speed):,.0f} tokens a second (median)" if speed else "not measured"
    config = json.dumps(run.config, indent=2, ensure_ascii=False, sort_keys=True)
    parts = [
        f"<h1>{_text(run.experiment)}</h1><p>{_text(str(path))}, {run.steps:,} steps, {throughput}</p>",
        "<h2>Results</h2>" + _table([(name, f"{value:.6g}") for name, value in numbers.items()]),
        *(f"<h2>{_text(name.replace('_', ' '))}</h2>{_picture(name, file)}" for name, file in figures.items()),
    ]
    for title, correct in (("wrong", False), ("right", True)):
        chosen = [sample for sample in samples if sample.is_correct == correct][:SAMPLES]
        if chosen:
            rows = [(each.source, each.output, " or ".join(each.references)) for each in chosen]
            parts.append(f"<h2>Samples, {title}</h2>" + _table(rows, ("source", "output", "reference"), title))
    command = shlex.join(["python", "train.py", str(path / "config.json"), "--workdir", f"{path}-again"])
    parts += [
        "<h2>To reproduce</h2><pre>" + _text(command) + "</pre>",
        "<h2>Environment</h2>" + _table(environment(devices)),
        "<h2>Config</h2><pre>" + _text(config) + "</pre>",
    ]
    head = f'<meta charset="utf-8"><title>{_text(run.experiment)}</title><style>{STYLE}</style>'
    page = f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'
    write_atomically(path / FILE_NAME, page.encode("utf-8", "replace"))
    return path / FILE_NAME


def environment(devices: Sequence[str]) -> list[tuple[str, str]]:
    """Return what the run depends on besides its config: versions, devices, and the state of the git checkout."""
    versions = [(name, importlib.metadata.version(name)) for name in PACKAGES]
    return [
        ("devices", ", ".join(devices)),
        ("Python", f"{platform.python_version()} on {platform.platform()}"),
        *versions,
        ("code", git_state()),
    ]


def git_state() -> str:
    """Return the commit of this code, and whether files differ from it; "no git checkout" where there is none."""
    root = Path(__file__).resolve().parent.parent
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return "no git checkout"
    return done.stdout.strip() if done.returncode == 0 else "no git checkout"


def _text(value: Any) -> str:
    return html.escape(str(value))


def _table(rows: Sequence[Sequence[str]], header: Sequence[str] = (), kind: str = "") -> str:
    head = f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in header)}</tr>" if header else ""
    # dir=auto: text that is written from the right to the left is shown so.
    body = "".join(f"<tr>{''.join(f'<td dir=auto>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="{kind}">{head}{body}</table>'


def _picture(name: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{_text(name)}" src="data:image/png;base64,{data}">'
