"""Vision encoders: ResNet-18 with group norm, and a small one for training on a CPU core."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from factored_scaling.policies.config import DiffusionConfig, RemixConfig


def group_norm(channels: int) -> nn.GroupNorm:
    """Sixteen channels per group: unlike batch norm, independent of the other samples."""
    return nn.GroupNorm(max(1, channels // 16), channels)


class Residual(nn.Module):
    """Two 3×3 convolutions and a shortcut, named as torchvision names them so that its weights can be loaded."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = group_norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = group_norm(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), group_norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(nn.Module):
    """ResNet-18 up to its last feature map: 3 × height × width → 8·width × height/32 × width/32.

    `width` counts the channels of the first layer: 64 in the original, 32 in the half-width form.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.channels = 8 * width
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = group_norm(width)
        self.layer1 = nn.Sequential(Residual(width, width, 1), Residual(width, width, 1))
        self.layer2 = nn.Sequential(Residual(width, 2 * width, 2), Residual(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(Residual(2 * width, 4 * width, 2), Residual(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(Residual(4 * width, 8 * width, 2), Residual(8 * width, 8 * width, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return cast(Tensor, self.layer4(self.layer3(self.layer2(self.layer1(x)))))


class SmallEncoder(nn.Module):
    """Three strided convolutions: 3 × height × width → 4·width × height/8 × width/8, for images of 32–64 px."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.channels = 4 * width
        self.conv1 = nn.Conv2d(3, width, 4, 2, 1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.conv3 = nn.Conv2d(2 * width, 4 * width, 3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.conv1(x))
        x = functional.relu(self.conv2(x))
        return functional.relu(self.conv3(x))


def _network(config: DiffusionConfig | RemixConfig) -> nn.Module:
    if config.encoder == "small":
        return SmallEncoder(config.encoder_width)
    return ResNet18(64 if config.encoder == "resnet18" else 32)


class Encoder(nn.Module):
    """One camera's network and its pooling: float images in [0, 1] → `features` numbers per image."""

    def __init__(self, config: DiffusionConfig | RemixConfig, image_size: tuple[int, int]) -> None:
        super().__init__()
        self.network = _network(config)
        self.pool = config.pool
        self.project: nn.Module = nn.Identity()
        with torch.no_grad():
            channels, height, width = self.network(torch.zeros(1, 3, *image_size)).shape[1:]
        if self.pool == "mean":
            self.features = int(channels)
        elif self.pool == "spatial-softmax":
            self.features = 2 * int(channels)
            across, down = torch.linspace(-1, 1, width), torch.linspace(-1, 1, height)
            grid = torch.stack(torch.meshgrid(across, down, indexing="xy"), -1)
            self.register_buffer("grid", grid.reshape(-1, 2), persistent=False)
        else:
            self.features = 64
            self.project = nn.Sequential(nn.Linear(channels * height * width, 64), nn.LayerNorm(64), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        maps = self.network(images * 2 - 1)
        if self.pool == "mean":
            return cast(Tensor, maps.mean((2, 3)))
        if self.pool == "spatial-softmax":
            weights = maps.flatten(2).softmax(-1)  # samples × channels × places
            return cast(Tensor, (weights @ self.grid).flatten(1))
        return cast(Tensor, self.project(maps.flatten(1)))


class Eyes(nn.Module):
    """One encoder per camera: images samples × cameras × 3 × height × width → all features side by side."""

    def __init__(self, config: DiffusionConfig | RemixConfig, cameras: int, image_size: tuple[int, int]) -> None:
        super().__init__()
        self.cameras = nn.ModuleList(Encoder(config, image_size) for _ in range(cameras))
        self.features = sum(cast(Encoder, encoder).features for encoder in self.cameras)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([encoder(images[:, index]) for index, encoder in enumerate(self.cameras)], -1)
