"""Pictures of what each word was predicted from."""

import pytest
import torch

from zoo.plots import look_back_picture
from zoo.plots.page import SIZE, SMALL
from zoo.plots.style import shade


def texts_of(figure, size):
    return [text.get_text() for text in figure.axes[0].texts if text.get_fontsize() == size]


def test_each_line_has_its_window_the_word_read_last_and_the_next_word(tmp_path, drawn):
    attention = torch.tensor([[0, 0], [1, 0], [0.25, 0.75]])
    path = look_back_picture(tmp_path / "a.png", ["a", "bad", "end"], attention, given=1, title="Look")
    assert path == tmp_path / "a.png" and path.stat().st_size > 1000
    (figure,) = drawn
    words = [text for text in figure.axes[0].texts if text.get_fontsize() == SIZE]
    lines = {}
    for text in words:
        lines.setdefault(text.get_position()[1], []).append((text.get_position()[0], text.get_text()))
    assert [[word for _, word in sorted(line)] for _, line in sorted(lines.items())] == [
        ["</s>", "→", "a"],
        ["</s>", "a", "→", "bad"],
        ["</s>", "a", "bad", "→", "end"],
    ]
    assert {text.get_text() for text in words if text.get_weight() == "bold"} == {"bad", "end"}
    shades = [patch.get_facecolor() for patch in figure.axes[0].patches]
    for weight in (1, 0.25, 0.75):
        colour = tuple(int(shade(weight)[i : i + 2], 16) / 255 for i in (1, 3, 5))
        assert any(found[:3] == pytest.approx(colour) for found in shades)
    assert {"−1", "−2", "read last", "next"} <= set(texts_of(figure, SMALL))


def test_everything_is_on_the_page(tmp_path, drawn):
    tokens = ["unbelievably" * 3, "a", "$x$", "b"] * 3
    for window in (1, 15, 100):
        look_back_picture(tmp_path / "a.pdf", tokens, torch.full((12, window), 1 / window), title="x " * 200)
        figure = drawn[-1]
        width, height = figure.bbox.size
        for text in figure.axes[0].texts:
            box = text.get_window_extent()
            assert box.x0 > 0 and box.x1 < width and box.y0 > 0 and box.y1 < height, text.get_text()


def test_a_long_text_loses_its_beginning(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr("zoo.plots.style.MAX_PIXELS", 1000)
    look_back_picture(tmp_path / "a.png", [f"w{n}" for n in range(200)], torch.full((200, 2), 0.5))
    assert any("of 200 words are left out" in text for text in texts_of(drawn[0], SMALL))
    assert "w199" in texts_of(drawn[0], SIZE) and "w0" not in texts_of(drawn[0], SIZE)


def test_mistakes(tmp_path):
    path = tmp_path / "a.png"
    with pytest.raises(TypeError, match="tokens must be a list of words; got a string"):
        look_back_picture(path, "abc", torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"a row for each of the 2 tokens; got shape \(3, 1\)"):
        look_back_picture(path, ["a", "b"], torch.ones(3, 1))
    with pytest.raises(ValueError, match="there are no words or no attention to plot"):
        look_back_picture(path, [], torch.ones(0, 2))
    with pytest.raises(ValueError, match="must be finite and not negative; got -1"):
        look_back_picture(path, ["a"], torch.full((1, 1), -1.0))
    assert not path.exists()
