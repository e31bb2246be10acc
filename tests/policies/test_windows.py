from __future__ import annotations

import numpy as np
import pytest
import torch

from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.windows import ColourJitter, DeviceFrames, Scaling, generator, mix, shifted, trial_noise


def test_windows_repeat_the_last_action_at_the_end_of_their_episode() -> None:
    action = np.arange(7, dtype=np.float32)[:, None]
    table = FrameTable(
        np.zeros((7, 1, 3, 2, 2), np.uint8), action, action, np.array([0, 3, 7]), ("a", "b"), (None, None)
    )
    windows = DeviceFrames.of(table, "cpu").actions_from(torch.tensor([0, 1, 2, 3, 6]), 4)[..., 0]
    assert windows.tolist() == [[0, 1, 2, 2], [1, 2, 2, 2], [2, 2, 2, 2], [3, 4, 5, 6], [6, 6, 6, 6]]


@pytest.mark.parametrize("method", ["min-max", "mean-std"])
def test_scaling_inverts_and_survives_constants(method: str) -> None:
    values = torch.tensor([[0.0, 5.0], [2.0, 5.0], [6.0, 5.0]])
    scaling = Scaling(2)
    scaling.fit(values, method)
    scaled = scaling(values)
    torch.testing.assert_close(scaling.inverse(scaled), values)
    assert scaled[:, 1].tolist() == [0, 0, 0]
    if method == "min-max":
        assert (scaled[0, 0], scaled[2, 0]) == (-1, 1)
    else:
        assert float(scaled[:, 0].std(correction=0)) == pytest.approx(1)


def test_shifts_move_each_camera_of_each_sample_by_itself_and_repeat_the_border() -> None:
    images = torch.arange(2 * 2 * 3 * 4 * 4).view(2, 2, 3, 4, 4).to(torch.uint8)
    offsets = torch.tensor([[[0, 0], [1, 0]], [[0, -2], [5, 5]]])
    moved = shifted(images, offsets)
    assert torch.equal(moved[0, 0], images[0, 0])
    assert torch.equal(moved[0, 1], images[0, 1][:, [1, 2, 3, 3]])
    assert torch.equal(moved[1, 0], images[1, 0][:, :, [0, 0, 0, 1]])
    assert torch.equal(moved[1, 1], images[1, 1][:, 3:, 3:].expand(3, 4, 4))


def jitter(images: torch.Tensor, change: list[float]) -> torch.Tensor:
    uniform = torch.tensor(change).expand(*images.shape[:2], 4)
    return ColourJitter(0.5, 0.5, 0.25, images.device)(images, uniform)


def test_no_jitter_changes_nothing() -> None:
    images = torch.rand(2, 2, 3, 5, 5)
    torch.testing.assert_close(jitter(images, [0.0] * 4), images, atol=2e-3, rtol=0)


def test_each_jitter_does_its_own_thing() -> None:
    images = 0.3 + 0.2 * torch.rand(2, 1, 3, 5, 5)  # far enough from black and white that nothing is clipped
    torch.testing.assert_close(jitter(images, [0.5, 0, 0, 0]), images * 1.25, atol=2e-3, rtol=0)
    grey = (images * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(2, keepdim=True)
    expected = grey.mean((3, 4), keepdim=True) * 0.5 + images * 0.5
    torch.testing.assert_close(jitter(images, [0, -1.0, 0, 0]), expected, atol=2e-3, rtol=0)
    torch.testing.assert_close(jitter(images, [0, 0, -1.0, 0]), (images + grey) / 2, atol=2e-3, rtol=0)
    turned = jitter(images, [0, 0, 0, 1.0])
    assert (turned - images).abs().max() > 0.02
    turned_grey = (turned * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(2, keepdim=True)
    torch.testing.assert_close(turned_grey, grey, atol=2e-3, rtol=0)


def test_jitter_is_per_sample() -> None:
    images = torch.full((2, 1, 3, 4, 4), 0.4)
    uniform = torch.zeros(2, 1, 4)
    uniform[1, 0, 0] = 1.0
    out = ColourJitter(0.5, 0.5, 0.1, images.device)(images, uniform)
    torch.testing.assert_close(out[0], images[0], atol=2e-3, rtol=0)
    torch.testing.assert_close(out[1], images[1] * 1.5, atol=2e-3, rtol=0)


def test_noise_is_normal_and_depends_on_its_own_words_alone() -> None:
    rows, decisions = np.arange(200), np.zeros(200, dtype=np.int64)
    noise = trial_noise(7, rows, decisions, 64)
    assert noise.dtype == np.float32
    assert abs(noise.mean()) < 0.02
    assert noise.std() == pytest.approx(1, abs=0.02)
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.03
    np.testing.assert_array_equal(trial_noise(7, rows[5:6], decisions[5:6], 64)[0], noise[5])
    for other in (trial_noise(8, rows, decisions, 64), trial_noise(7, rows, decisions + 1, 64)):
        assert abs(np.corrcoef(noise.ravel(), other.ravel())[0, 1]) < 0.03


def test_generators_differ_by_any_word() -> None:
    draws = {float(torch.rand((), generator=generator(*words))) for words in [(0, 1), (1, 0), (0, 2), (0,), (-1,)]}
    assert len(draws) == 5
    assert mix(3, 4) == mix(3, 4)
