"""The page of a run: self-contained, whole, and safe whatever the data say."""

import base64
from html.parser import HTMLParser

from evaluation.evaluate_split import ScoredExample
from reporting.page import write_page
from tests.reporting.test_runs import write_run

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Page(HTMLParser):
    """Tags, and the text of each cell and block."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attr) for attr in attrs]

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_has_everything_and_needs_nothing(tmp_path):
    rows = [{"step": 5, "split": "train", "loss": 1.0, "tokens_per_second": speed} for speed in (100.0, 300.0, 200.0)]
    config = {"experiment": "reverse", "optimizer": {"peak_lr": 0.125}, "train": {"steps": 5}}
    run = write_run(tmp_path / "a run", config, rows, {"validation_loss": 0.5, "worst": {"x": 1}})
    (run / "training.png").write_bytes(PNG)
    samples = [
        ScoredExample("<script>alert(1)</script>", "a & b", ("c", "d"), None),
        ScoredExample("십이월", "12", ("12",), None),
    ]
    path = write_page(run, {"training": run / "training.png"}, samples, ["cpu 0"])
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert path.name == "report.html" and "script" not in page.tags
    for wanted in ("<script>alert(1)</script>", "a & b", "c or d", "십이월", "validation_loss", "0.5", "cpu 0"):
        assert wanted in page.texts, wanted
    assert any('"peak_lr": 0.125' in each for each in page.texts)
    assert any("200 tokens a second" in each for each in page.texts)
    assert f"python train.py '{run}/config.json' --workdir '{run}-again'" in page.texts
    sources = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert len(sources) == 1 and base64.b64decode(sources[0].partition(",")[2]) == PNG
    assert "jax" in page.texts and "http" not in text.lower()
