"""The interactive page of attention maps: its numbers, its text, and what a click does in a real browser."""

import base64
import json
import math
import re

import numpy as np
import pytest

from analysis.attention_maps import AttentionMap, entropy
from analysis.attention_page import attention_page
from tests.browser import browser

KOREAN = [*"2026년 11월"]
ARABIC = ["مرحبا", "<script>alert(1)</script>", "</script>", "end"]


def random_map(layers, heads, queries, keys):
    weights = np.exp(2 * np.random.default_rng(0).standard_normal((layers, heads, len(queries), len(keys))))
    return AttentionMap((weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32), keys, queries)


def data_of(page):
    found = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


def test_entropy_by_hand():
    weights = [[[1.0, 0, 0, 0], [0, 1, 0, 0]], [[0.25] * 4] * 2, [[0.5, 0.5, 0, 0], [1, 0, 0, 0]]]
    np.testing.assert_allclose(entropy(np.array(weights)), [0.0, math.log(4), math.log(2) / 2], rtol=1e-12)


def test_the_page_holds_the_weights_and_only_text():
    map_ = random_map(2, 3, ARABIC, KOREAN)
    page = attention_page({"decoder_cross_attention": map_}, "<b>مرحبا</b> & 2026년")
    assert page.count("<script") == page.count("</script>") == 2  # its data and its program
    assert "<b>" not in page and "&lt;b&gt;مرحبا&lt;/b&gt; &amp; 2026년" in page and "http" not in page
    kind = data_of(page)["kinds"]["decoder cross attention"]
    assert kind["keys"] == KOREAN and kind["queries"] == ARABIC
    levels = np.frombuffer(base64.b64decode(kind["weights"]), np.uint8).reshape(kind["shape"])
    np.testing.assert_allclose(levels / 255, map_.weights, atol=0.5 / 255 + 1e-6)
    np.testing.assert_allclose(kind["entropy"], entropy(map_.weights), atol=6e-4)


def test_what_is_no_attention_is_refused():
    with pytest.raises(ValueError, match="no attention maps"):
        attention_page({}, "x")
    good = random_map(1, 1, ["a"], ["b", "c"])
    with pytest.raises(ValueError, match=r"wanted \(heads, 2 queries, 2 keys\)"):
        attention_page({"self_attention": good._replace(queries=["a", "b"])}, "x")
    for wrong in (np.nan, -0.5, 2.0):
        with pytest.raises(ValueError, match="self_attention: wanted weights from 0 to 1"):
            attention_page({"self_attention": good._replace(weights=np.full((1, 1, 1, 2), wrong))}, "x")


@pytest.mark.slow
def test_a_click_in_chromium(tmp_path):
    long = [f"word{number}" for number in range(200)]
    maps = {
        "encoder_self_attention": random_map(1, 2, KOREAN, KOREAN),
        "decoder_cross_attention": random_map(2, 3, ARABIC, KOREAN),
        "self_attention": random_map(2, 2, long, long),
    }
    path = tmp_path / "attention.html"
    path.write_text(attention_page(maps, "a <b>title</b>"), encoding="utf-8")
    with browser() as window:
        window.open(path)
        assert window.run("return document.querySelector('h1').textContent") == "a <b>title</b>"
        window.click("#kinds button:nth-child(2)")
        texts = "return [...document.querySelectorAll('#%s bdi')].map((each) => each.textContent)"
        assert window.run(texts % "queries") == ARABIC  # <script> is text, and no element
        assert window.run(texts % "keys") == [token.replace(" ", "␣") for token in KOREAN]
        assert window.run("return document.querySelectorAll('script').length") == 2
        window.click("#grid tr:nth-child(3) td:nth-child(4) button")
        assert window.run("return document.querySelector('#which').textContent").startswith(
            "decoder cross attention, layer 2, head 3."
        )
        before = window.screenshot()
        window.point_at("#queries li:nth-child(2)")
        shown = window.run("return [...document.querySelectorAll('#keys small')].map((each) => each.textContent)")
        wanted = maps["decoder_cross_attention"].weights[1, 2, 1]
        np.testing.assert_allclose([float(text or 0) for text in shown], wanted, atol=0.008)
        assert window.screenshot() != before  # only its lines are left
        window.click("#queries li:nth-child(2)")
        window.point_at("#queries li:nth-child(3)")  # what was clicked stays
        assert window.run("return document.querySelector('.chosen bdi').textContent") == ARABIC[1]
        window.click("#kinds button:nth-child(3)")
        assert window.run("return document.querySelectorAll('#keys li').length") == 200
        (tmp_path / "attention.png").write_bytes(window.screenshot())
        assert window.messages() == []
