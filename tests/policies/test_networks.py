from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.resnet import Encoder, Eyes, ResNet18
from factored_scaling.policies.unet import UNet


def torchvision_names() -> set[str]:
    """The parameters of torchvision's resnet18 without its classifier."""
    names = {"conv1.weight", "bn1.weight", "bn1.bias"}
    for layer in range(1, 5):
        for block in range(2):
            stem = f"layer{layer}.{block}"
            for index in (1, 2):
                names |= {f"{stem}.conv{index}.weight", f"{stem}.bn{index}.weight", f"{stem}.bn{index}.bias"}
            if layer > 1 and block == 0:
                names |= {f"{stem}.downsample.0.weight", f"{stem}.downsample.1.weight", f"{stem}.downsample.1.bias"}
    return names


def test_resnet_has_torchvisions_names_and_size() -> None:
    network = ResNet18()
    assert {name for name, _ in network.named_parameters()} == torchvision_names()
    assert set(network.state_dict()) == torchvision_names()
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_176_512


def test_resnet_shrinks_by_thirty_two() -> None:
    with torch.no_grad():
        assert ResNet18()(torch.rand(1, 3, 64, 96)).shape == (1, 512, 2, 3)


@pytest.mark.parametrize("pool", ["mean", "flatten", "spatial-softmax"])
def test_every_pooling_gives_the_size_it_promises(tiny: DiffusionConfig, pool: str) -> None:
    encoder = Encoder(replace(tiny, pool=pool), (32, 48))
    assert encoder(torch.rand(2, 3, 32, 48)).shape == (2, encoder.features)


def test_spatial_softmax_says_where() -> None:
    encoder = Encoder(DiffusionConfig.preset("small", encoder_width=1, pool="spatial-softmax"), (32, 32))

    class Spot(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            maps = torch.zeros(1, 4, 4, 4)
            maps[0, :, 3, 0] = 100.0  # lower left
            return maps

    encoder.network = Spot()
    assert encoder(torch.zeros(1, 3, 32, 32)).reshape(4, 2)[0].tolist() == [-1.0, 1.0]


def test_each_camera_has_weights_of_its_own(tiny: DiffusionConfig) -> None:
    eyes = Eyes(tiny, 2, (24, 24))
    images = torch.rand(1, 1, 3, 24, 24).expand(1, 2, 3, 24, 24)
    left, right = eyes(images).chunk(2, 1)
    assert not torch.allclose(left, right)


@pytest.mark.parametrize(("widths", "blocks"), [((8,), 1), ((8, 16), 1), ((8, 16, 32), 2)])
def test_the_u_net_keeps_the_shape_and_sees_its_condition(
    tiny: DiffusionConfig, widths: tuple[int, ...], blocks: int
) -> None:
    network = UNet(3, 5, replace(tiny, widths=widths, blocks=blocks))
    actions, step, observation = torch.randn(2, 16, 3), torch.tensor([0, 50]), torch.randn(2, 5)
    out = network(actions, step, observation)
    assert out.shape == (2, 16, 3)
    assert not torch.allclose(out, network(actions, step, observation + 1), atol=1e-4)
    assert not torch.allclose(out, network(actions, step + 10, observation), atol=1e-4)


def test_the_papers_u_net_has_its_three_levels() -> None:
    network = UNet(8, 512 + 8, DiffusionConfig.preset("paper"))
    shapes = [tuple(level[0].conv1.weight.shape) for level in network.down]  # type: ignore[index]
    assert shapes == [(128, 8, 5), (256, 128, 5), (512, 256, 5)]
