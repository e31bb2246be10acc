from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import CheckpointError, NotEnoughData
from factored_scaling.policies.checkpoint import ResumePoints
from factored_scaling.policies.config import RemixConfig
from factored_scaling.policies.remix import (
    DiscreteModel,
    Domains,
    ProxyLearner,
    domain_means,
    gaussian_edges,
    load_remix,
    plot_trajectory,
    train_remix,
    updated_weights,
)
from factored_scaling.policies.training import Draw, train
from factored_scaling.policies.windows import DeviceFrames
from factored_scaling.progress import Progress

TINY = RemixConfig.preset("small", encoder_width=4, hidden=[32, 32], updates=60, warmup=6, validate_every=20)


class Stop(Exception):
    pass


def test_the_edges_are_quantiles_and_hold_what_is_clipped() -> None:
    edges = gaussian_edges(48)
    assert edges.shape == (49,)
    assert float(edges[24]) == pytest.approx(0, abs=1e-6)
    assert float(edges[-1]) == pytest.approx(2 * 2.5758293, rel=1e-5)
    assert edges[0] < -5 < 5 < edges[-1]


def test_domain_means_count_the_non_zero_and_forgive_the_absent() -> None:
    values, domains = torch.tensor([3.0, 0.0, 1.0, 2.0]), torch.tensor([0, 0, 0, 2])
    assert domain_means(values, domains, 3).tolist() == [2.0, 0.0, 2.0]  # DoReMi would give 4/3 for the first


def test_the_weights_move_as_worked_out_by_hand() -> None:
    initial = torch.tensor([0.5, 0.25, 0.25])
    alpha = torch.tensor([0.4, 0.4, 0.2])
    excess, domains = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0, 0, 1])
    moved = [0.4 * math.exp(0.2 * 1.0), 0.4 * math.exp(0.2 * 3.0), 0.2]
    expected = [0.95 * value / sum(moved) + 0.05 * first for value, first in zip(moved, [0.5, 0.25, 0.25], strict=True)]
    result = updated_weights(alpha, initial, excess, domains, 0.2, 0.05)
    assert result.tolist() == pytest.approx(expected)
    assert float(result.sum()) == pytest.approx(1)


def test_the_loss_is_summed_over_dimensions_and_averaged_over_the_horizon() -> None:
    model = DiscreteModel(TINY, (1, 24, 24, 2, 3))
    model.head.weight.data.zero_()
    model.head.bias.data.zero_()
    losses = model.losses(torch.zeros(4, 1, 3, 24, 24, dtype=torch.uint8), torch.zeros(4, 2), torch.randn(4, 16, 3))
    assert losses.tolist() == pytest.approx([3 * math.log(48)] * 4, rel=1e-5)


def test_the_right_bin_is_rewarded_and_outliers_are_clipped() -> None:
    model = DiscreteModel(replace(TINY, horizon=1), (1, 24, 24, 2, 1))
    model.head.weight.data.zero_()
    model.head.bias.data.zero_()
    model.head.bias.data[47] = 50.0  # certain of the outermost bin
    image, state = torch.zeros(1, 1, 3, 24, 24, dtype=torch.uint8), torch.zeros(1, 2)
    with torch.no_grad():
        outlier, centre = torch.full((1, 1, 1), 1e6), torch.zeros(1, 1, 1)
        assert float(model.losses(image, state, outlier)) == pytest.approx(0, abs=1e-4)
        assert float(model.losses(image, state, centre)) > 10


def test_domains_are_the_factors_without_the_nominal_episodes(make_dots: Callable[..., FrameTable]) -> None:
    table = make_dots(20)
    factors: tuple[str | None, ...] = (None,) * 4 + ("b",) * 4 + ("a",) * 12
    table = replace(table, factors=factors)
    domains = Domains(table, validation=0.25, seed=0)
    assert domains.names == ("b", "a")
    assert domains.initial.tolist() == [0.25, 0.75]
    assert [len(rows) for rows in domains.rows] == [3 * 20, 9 * 20]
    everything = torch.cat([*domains.rows, domains.validation])
    assert sorted(everything.tolist()) == list(range(4 * 20, 20 * 20))
    draw = domains.draw(replace(TINY, batch=4000), torch.Generator().manual_seed(0))
    assert float((draw["domain"] == 1).float().mean()) == pytest.approx(0.75, abs=0.03)
    owner = [factors[int(window) // 20] for window in draw["window"]]
    assert owner == [domains.names[int(domain)] for domain in draw["domain"]]
    assert float(draw["keep0"].mean()) == pytest.approx(0.6, abs=0.02)


def test_a_factor_with_one_episode_keeps_it_for_training(make_dots: Callable[..., FrameTable]) -> None:
    domains = Domains(make_dots(2), validation=0.5, seed=0)
    assert [len(rows) for rows in domains.rows] == [20, 20]
    assert len(domains.validation) == 40  # nothing to spare, so the training frames judge


def test_without_factors_there_is_nothing_to_weigh(make_dots: Callable[..., FrameTable]) -> None:
    with pytest.raises(NotEnoughData, match="no episode varies one"):
        Domains(replace(make_dots(2), factors=(None, None)), 0.1, 0)


def test_the_weight_goes_where_the_reference_is_better(
    tmp_path: Path, make_dots: Callable[..., FrameTable], silent: Progress
) -> None:
    """A stand-in reference that is perfect in the first factor and hopeless in the second."""
    table = make_dots(10)
    second = np.repeat([factor == "background" for factor in table.factors], 20)
    table = replace(table, action=np.repeat(second[:, None], 2, axis=1).astype(np.float32))

    class Reference(DiscreteModel):
        def losses(
            self, images: torch.Tensor, state: torch.Tensor, actions: torch.Tensor, draw: Draw | None = None
        ) -> torch.Tensor:
            return actions[:, 0, 0] * 1000

    shape = (1, 24, 24, 2, 2)
    learner = ProxyLearner(
        DiscreteModel(TINY, shape), Reference(TINY, shape), DeviceFrames.of(table, "cpu"), Domains(table, 0.1, 0), 0
    )
    train(learner, TINY.optimisation, tmp_path, "i", silent)
    trajectory = learner.module.trajectory
    assert isinstance(trajectory, torch.Tensor)
    # The first weight climbs to where the ascent and the pull back to ½ balance, whatever the loss was.
    assert trajectory[:, 0].min() > 0.5
    assert float(trajectory[-1, 0]) == pytest.approx(0.95 + 0.05 * 0.5, abs=0.03)


def test_a_stopped_remix_resumes_to_the_same_weights_and_a_finished_one_returns(
    tmp_path: Path, table: FrameTable, silent: Progress
) -> None:
    whole = train_remix(table, TINY, 3, tmp_path / "whole", silent)
    assert whole.trajectory.shape == (60, 2)
    assert whole.domains == ("dot_colour", "background")
    np.testing.assert_allclose(whole.trajectory.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(list(whole.weights.values()), whole.trajectory.mean(0), atol=1e-6)

    def stop_at(step: int) -> Progress:
        def progress(done: int, total: int, note: str = "") -> None:
            assert total == 120
            if done >= step:
                raise Stop

        return progress

    for step in (40, 80):  # in the reference, then in the proxy
        with pytest.raises(Stop):
            train_remix(table, TINY, 3, tmp_path / "parts", stop_at(step))
    parts = train_remix(table, TINY, 3, tmp_path / "parts", silent)
    np.testing.assert_array_equal(parts.trajectory, whole.trajectory)
    assert ResumePoints(tmp_path / "parts" / "proxy").steps() == []
    again = train_remix(table, TINY, 3, tmp_path / "parts", stop_at(0))
    assert again.weights == whole.weights
    with pytest.raises(CheckpointError, match="other data, settings or seed"):
        train_remix(table, TINY, 4, tmp_path / "parts", silent)
    path = tmp_path / "parts" / "remix.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="run Re-Mix again"):
        load_remix(tmp_path / "parts")
    plot_trajectory(whole, tmp_path / "weights.png")
    assert (tmp_path / "weights.png").stat().st_size > 5000
