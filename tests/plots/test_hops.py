"""Pictures of hops: the text on its total attention, a row for each hop, a column for each token."""

import matplotlib.image
import numpy as np
import pytest
import torch

from zoo.plots import hops_picture
from zoo.plots.hops import LABEL
from zoo.plots.page import FINEST, MAX_WIDTH, SIZE


def sample(r, n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [f"tok{i}" for i in range(n)], (2 * torch.randn(r, n, generator=generator)).softmax(1)


def maps_of(figure):
    """The heat maps, as arrays, without the scales (which reach from 0 to 1 in 64 steps)."""
    arrays = [np.asarray(image.get_array()) for image in figure.axes[0].images]
    return [array for array in arrays if array.shape != (1, 64)]


def texts_of(figure, size):
    return [text.get_text() for text in figure.axes[0].texts if text.get_fontsize() == size]


@pytest.mark.parametrize(("r", "n"), [(1, 1), (1, 30), (4, 17), (30, 60), (30, 600)])
def test_text_hops_and_their_sum(tmp_path, drawn, r, n):
    tokens, attention = sample(r, n)
    path = hops_picture(tmp_path / "a.png", [tokens], [attention], title="Four stars")
    assert path == tmp_path / "a.png" and max(matplotlib.image.imread(path).shape) < 3000
    (figure,) = drawn
    assert texts_of(figure, SIZE) == tokens
    assert texts_of(figure, LABEL) == (tokens if n <= 60 else [])
    hops, *total = maps_of(figure)
    np.testing.assert_allclose(hops, attention)
    assert len(total) == (r > 1)
    for row in total:
        np.testing.assert_allclose(row, attention.sum(0, keepdim=True) / r, rtol=1e-5)
    small = texts_of(figure, 7.5)
    assert ("sum" in small) == (r > 1) and all((str(hop + 1) in small) == (r > 1) for hop in range(1, r))
    assert ("500" in small) == (n == 600)


def test_everything_is_on_the_page(tmp_path, drawn):
    long = ["unbelievably" * 3] * 60
    attentions = [torch.full((30, 60), 1 / 60), [[1.0]] * 30]
    hops_picture(tmp_path / "a.png", [long, ["a"]], attentions, "x " * 300, ["premise", "hypothesis"])
    width, height = drawn[0].bbox.size
    for text in drawn[0].axes[0].texts:
        box = text.get_window_extent()
        assert box.x0 > 0 and box.x1 < width and box.y0 > 0 and box.y1 < height, text.get_text()


def test_a_pair_of_texts(tmp_path, drawn):
    (first, a), (second, b) = sample(3, 9), sample(3, 5, seed=1)
    hops_picture(tmp_path / "a.png", [first, second], [a.tolist(), b], labels=["premise", "hypothesis"])
    words = texts_of(drawn[0], SIZE)
    assert words == ["premise", *first, "hypothesis", *second]
    assert [array.shape for array in maps_of(drawn[0])] == [(3, 9), (1, 9), (3, 5), (1, 5)]


def test_words_are_darker_with_their_total(tmp_path, drawn):
    attention = torch.stack([torch.arange(1.0, 31), torch.arange(2.0, 32)])
    hops_picture(tmp_path / "a.png", [[f"w{n}" for n in range(30)]], [attention / attention.sum(1, keepdim=True)])
    boxes = next(c for c in drawn[0].axes[0].collections if len(c.get_facecolor()) == 30)
    brightness = boxes.get_facecolor()[:, :3].sum(1)
    assert (np.diff(brightness) < 0).all()


def test_no_peak_is_lost_in_a_long_text(tmp_path, drawn):
    n = 1700
    assert MAX_WIDTH / n < FINEST / 2  # several tokens share a cell
    attention = torch.zeros(2, n)
    attention[0, 1234] = attention[1, n - 1] = 1
    hops_picture(tmp_path / "a.png", [["a"] * n], [attention])
    hops, total = maps_of(drawn[0])
    assert hops.shape[1] < n and hops.max(1).tolist() == [1, 1] and (hops > 0).sum() == 2
    assert hops[0].argmax() / hops.shape[1] == pytest.approx(1234 / n, abs=0.002)
    assert total.max() == 0.5


def test_an_absurd_length_stays_within_memory(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr("zoo.plots.style.MAX_PIXELS", 900)
    tokens, attention = sample(2, 1000)
    path = hops_picture(tmp_path / "a.png", [tokens], [attention])
    assert max(matplotlib.image.imread(path).shape) <= 900
    words = [word for word in texts_of(drawn[0], SIZE) if word != "…"]
    assert words == [token for token in tokens if token in set(words)] and "…" in texts_of(drawn[0], SIZE)
    assert any(
        text.startswith(f"{1000 - len(words):,} of 1,000 words are left out") for text in texts_of(drawn[0], 7.5)
    )


def test_wrong_shapes(tmp_path):
    with pytest.raises(ValueError, match=r"a column for each of the 2 tokens of text 1; got shape \(2, 1\)"):
        hops_picture(tmp_path / "a.png", [["a", "b"]], [torch.rand(2, 1)])
    with pytest.raises(TypeError, match="got a string in place of such a list"):
        hops_picture(tmp_path / "a.png", ["a", "b"], torch.rand(1, 2))
