"""Results whose weights are NumPy arrays need no torch, and answer as those with tensors do."""

import io
import subprocess
import sys
from dataclasses import fields, replace

import array_results
import numpy as np
import pytest
import torch
from array_results import RESULTS
from PIL import Image

from zoo.plots.weights import as_array
from zoo.vision.images import ImageTransform

each = pytest.mark.parametrize("name", RESULTS)


def tensors(value):
    """A field of a result with tensors in place of arrays."""
    if isinstance(value, list):
        return [tensors(item) for item in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def of_torch(result):
    return replace(result, **{field.name: tensors(getattr(result, field.name)) for field in fields(result)})


def flat(result):
    for field in fields(result):
        value = getattr(result, field.name)
        yield from value if isinstance(value, list) else [value]


def test_everything_works_without_torch(tmp_path):
    command = [sys.executable, array_results.__file__, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "[]\n"


@each
def test_arrays_and_tensors_give_the_same(name):
    result, same = RESULTS[name], of_torch(RESULTS[name])
    assert any(isinstance(value, torch.Tensor) for value in flat(same))
    assert result.to_dict() == same.to_dict()
    assert result.to_html(title="model") == same.to_html(title="model")
    assert result._repr_html_() == same._repr_html_()
    assert result.to_pandas().equals(same.to_pandas())


def pixels(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=40)
    return np.asarray(Image.open(file))


@pytest.mark.parametrize("name", ["alignment", "caption"])  # drawn from arrays; the others from lists, as pages are
def test_arrays_and_tensors_give_the_same_picture(name):
    picture = pixels(RESULTS[name].plot())
    assert picture.std() > 1 and np.array_equal(picture, pixels(of_torch(RESULTS[name]).plot()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_numbers_of_any_tensor(dtype):
    weights = torch.tensor([[0.25, 0.1], [0.75, 0.9]], dtype=dtype, requires_grad=True)
    assert as_array(weights).dtype == np.float64
    assert as_array(weights).tolist() == weights.tolist()
    assert as_array(weights[:, 1]).tolist() == as_array(weights)[:, 1].tolist() == weights[:, 1].tolist()


def test_numbers_of_lists_and_arrays():
    assert as_array([0.1, 1]).tolist() == [0.1, 1.0]
    half = np.array([0.1, 0.9], np.float16)
    assert as_array(half).tolist() == half.tolist() and as_array(half).dtype == np.float64
    for wrong in (["0.5"], [None], [1j]):
        with pytest.raises(TypeError, match="values that are not numbers: "):
            as_array(wrong)


@pytest.mark.parametrize("resize", ["squash", "crop"])
def test_pixels_of_a_photo_as_an_array(resize):
    transform, image = ImageTransform(12, resize), array_results.photo()
    pixels = transform.array(image)
    assert pixels.dtype == np.uint8 and pixels.shape == (3, 12, 12) and pixels.flags.c_contiguous
    assert np.array_equal(pixels, transform.pixels(image).numpy())
    assert np.array_equal(pixels[1], np.asarray(transform.resized(image))[..., 1])
