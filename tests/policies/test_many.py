"""Many policies as one job; here by the plain path, on a GPU by captured graphs (`train_throughput.py --check`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import build_learner, load_policy, train_diffusion
from factored_scaling.policies.many import Job, _identity, train_many
from factored_scaling.policies.training import identity_of
from factored_scaling.policies.windows import DeviceFrames

# compiling, torch warns of itself and of matrix products that could be faster
ON_A_GPU = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=ON_A_GPU)]


def silent(done: int, total: int, note: str = "") -> None: ...


@pytest.mark.parametrize("device", DEVICES)
def test_together_is_as_alone_and_one_that_diverges_fails_alone(
    tmp_path: Path, make_dots: Callable[..., FrameTable], tiny: DiffusionConfig, device: str
) -> None:
    table = make_dots(6)
    seen: list[tuple[int, int]] = []
    config = replace(tiny, updates=40)
    jobs = [Job(table.ids[: 3 + seed], config, seed, tmp_path / f"together-{seed}") for seed in range(2)]
    bad = Job(table.ids, replace(config, learning_rate=1e30, gradient_clip=0.0), 9, tmp_path / "diverges")
    failures = train_many(table, [*jobs, bad], lambda done, total, note="": seen.append((done, total)), device)
    assert list(failures) == [bad.folder]
    assert "loss is" in failures[bad.folder]
    assert seen[-1][1] == 120
    for job in jobs:
        alone = tmp_path / f"alone-{job.seed}"
        train_diffusion(table.select(job.episodes), config, job.seed, alone, silent, device)
        losses = [json.loads((place / "policy.json").read_text())["final_loss"] for place in (job.folder, alone)]
        assert losses[0] == pytest.approx(losses[1], rel=0.02 if device == "cuda" else 1e-6)
        assert load_policy(job.folder).description["episodes"] == list(job.episodes)
    assert train_many(table, jobs, silent, device) == {}


def test_the_identity_needs_no_images(make_dots: Callable[..., FrameTable], tiny: DiffusionConfig) -> None:
    table = make_dots(5)
    job = Job((table.ids[3], table.ids[0]), tiny, 4, Path())
    assert _identity(table, job) == identity_of(table.select(job.episodes), tiny.to_mapping(), 4)


def test_policies_with_training_sets_of_any_size_share_one_compiled_loss(
    make_dots: Callable[..., FrameTable], tiny: DiffusionConfig
) -> None:
    frames = DeviceFrames.of(make_dots(5), "cpu")
    torch._dynamo.reset()
    counters["stats"].clear()
    for seed, length in enumerate((100, 60, 40)):
        learner = build_learner(frames, torch.arange(length), tiny, seed)
        compiled = torch.compile(learner.loss, dynamic=False, backend="aot_eager")
        draw = learner.draw(0)
        assert float(compiled(draw).detach()) == pytest.approx(float(learner.loss(draw).detach()), rel=1e-5)
    assert counters["stats"]["unique_graphs"] == 1
