"""`caption`: what it takes, what it gives, and that images do not influence each other."""

import json

import PIL.Image
import pytest
import torch
from captions_fakes import picture

from zoo.models.show_attend_tell import ShowAttendTell
from zoo.tasks.captioning import CaptioningModule
from zoo.text import EOS, Tokenizer
from zoo.vision.images import ImageError

WORDS = "a dog runs in the snow near water"


@pytest.fixture
def model():
    torch.manual_seed(3)
    model = ShowAttendTell(**{**ShowAttendTell.tiny, "vocab_size": 14, "image_size": 18}).eval()
    for parameter in model.parameters():
        parameter.data.mul_(2.5)
    model.output.bias.data[EOS] -= 2  # no empty captions
    model.tokenizer = Tokenizer.train([WORDS], "word_punct", 14, lowercase=True)
    return model


@pytest.fixture
def files(tmp_path):
    """Images of different sizes and kinds."""
    found = []
    for number, (width, height, kind) in enumerate([(20, 16, "PNG"), (40, 7, "JPEG"), (1, 1, "GIF"), (18, 18, "BMP")]):
        found.append(tmp_path / f"{number}.{kind.lower()}")
        found[-1].write_bytes(picture(number, width, height, kind))
    return found


def test_one_image_in_every_form(model, files):
    want = model.caption(files[0])
    image = PIL.Image.open(files[0])
    for source in (str(files[0]), files[0].read_bytes(), image, image.convert("RGBA")):
        found = model.caption(source)
        assert (found.text, found.score) == (want.text, want.score)
        assert torch.equal(found.attention, want.attention)
    assert image.mode == "RGB" and image.size == (20, 16)


def test_what_a_caption_holds(model, files):
    caption = model.caption(files[1])
    assert caption.tokens and set(caption.tokens[:-1]) <= {*WORDS.split(), "</s>"}
    assert (
        caption.text == " ".join(caption.tokens).removesuffix(caption.tokens[-1]).strip() or len(caption.tokens) == 40
    )
    assert caption.attention.shape == (len(caption.tokens), 9, 9)
    torch.testing.assert_close(caption.attention.sum((1, 2)), torch.ones(len(caption.tokens)))
    assert caption.image.size == (40, 7)
    assert caption.n_best == [(caption.text, caption.score)]
    found = json.loads(json.dumps(caption.to_dict()))
    assert found["text"] == caption.text and len(found["attention"]) == len(caption.tokens) and "n_best" not in found


def test_a_list_keeps_its_order_and_images_do_not_influence_each_other(model, files):
    alone = [model.caption(file) for file in files]
    assert len({caption.score for caption in alone}) == 4  # they are different
    for batch_size in (1, 3, 32):
        together = model.caption([*files, files[0]], batch_size=batch_size)
        for one, other in zip([*alone, alone[0]], together, strict=True):
            assert one.text == other.text and one.score == pytest.approx(other.score, abs=1e-5)
            torch.testing.assert_close(one.attention, other.attention, rtol=1e-4, atol=1e-6)
    assert model.caption([]) == []


def test_search_options(model, files):
    best = model.caption(files[0], beam_size=4, n_best=3)
    assert len(best.n_best) == 3 and [score for _, score in best.n_best] == sorted(
        (s for _, s in best.n_best), reverse=True
    )
    assert len(best.to_dict()["n_best"]) == 3
    assert model.caption(files[0], beam_size=1).score <= best.score + 1e-6
    torch.manual_seed(0)
    drawn = {model.caption(files[0], temperature=3.0).text for _ in range(8)}
    assert len(drawn) > 1


def test_the_encoder_may_be_replaced_by_its_features(model, files):
    """As batches of a frozen encoder hold them."""
    pixels = torch.stack([model.transform.pixels(PIL.Image.open(file).convert("RGB")) for file in files])
    features = model.features(pixels)
    assert torch.equal(model.features(features.half()), features.half().float())
    logits = [model(x, torch.full((4, 1, 3), 5))[0] for x in (pixels, features)]
    torch.testing.assert_close(*logits)


def test_as_a_part_of_another_module(model):
    images = model.example_batch(2).images
    torch.nn.Sequential(model).double()
    assert model.features(images).dtype == torch.float64
    assert model.features(model.features(images).float()).dtype == torch.float64


def test_pictures(model, files, tmp_path):
    caption = next(caption for caption in model.caption(files) if caption.text)
    assert PIL.Image.open(caption.plot(tmp_path / "caption.png")).width > 100
    page = caption.to_html(tmp_path / "caption.html").read_text()
    assert page.startswith("<!") and "http" not in page.replace("http://www.w3.org", "")


def test_bad_input(model, files, tmp_path):
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(ImageError, match="text.jpg: not an image in a known format"):
        model.caption([files[0], tmp_path / "text.jpg"])
    with pytest.raises(ImageError, match="nowhere.jpg: no such file"):
        model.caption("nowhere.jpg")
    with pytest.raises(TypeError, match="an image must be a path, bytes or a PIL image; got int"):
        model.caption([3])
    with pytest.raises(TypeError, match="caption takes an image .* or a list of them; got int"):
        model.caption(3)
    with (
        open(files[0], "rb") as opened,
        pytest.raises(TypeError, match="caption takes an image .*; got BufferedReader"),
    ):
        model.caption(opened)
    with pytest.raises(ValueError, match="beam_size must be from 1 to 100; got 0"):
        model.caption(files[0], beam_size=0)
    model.tokenizer = None
    with pytest.raises(ValueError, match="no tokenizer yet; load a pretrained one with zoo.load"):
        model.caption(files[0])
    assert not model.training


def test_a_bundle_captions_alone(model, files, tmp_path):
    again = ShowAttendTell.from_pretrained(model.save_pretrained(tmp_path / "bundle"))
    assert {file.name for file in (tmp_path / "bundle").iterdir()} == {
        "config.json", "model.safetensors", "tokenizer.json", "preprocessing.json",
    }  # fmt: skip
    assert again.transform == model.transform
    assert [c.text for c in again.caption(files)] == [c.text for c in model.caption(files)]


def test_teacher_forcing_by_steps_is_that_of_the_model(float64):
    torch.manual_seed(0)
    model = ShowAttendTell(**{**ShowAttendTell.tiny, "backbone_weights": None}).double().eval()
    batch = model.example_batch(3)
    inputs = model.features(batch.images), batch.captions[..., :-1]
    found, expected = CaptioningModule.forward(model, *inputs), model(*inputs)
    assert found[0].shape == expected[0].shape == (3, 2, 5, model.config["vocab_size"])
    torch.testing.assert_close(found, expected)
