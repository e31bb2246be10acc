from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import CheckpointError, RunFailed
from factored_scaling.policies import checkpoint
from factored_scaling.policies.config import DiffusionConfig, Optimisation
from factored_scaling.policies.diffusion import train_diffusion
from factored_scaling.policies.training import Draw, Training, learning_rate, train
from factored_scaling.progress import Progress


class Line:
    """The least learner: fits a line to points that the step draws."""

    def __init__(self, poison: int = -1) -> None:
        self.module = nn.Linear(1, 1)
        nn.init.zeros_(self.module.weight)
        self.poison = poison
        self.steps: list[int] = []

    def draw(self, step: int) -> Draw:
        x = torch.rand(16, 1, generator=torch.Generator().manual_seed(step))
        return {"x": x / 0 if step == self.poison else x, "step": torch.tensor(step)}

    def loss(self, draw: Draw) -> Tensor:
        error: Tensor = self.module(draw["x"]) - 3 * draw["x"] - 1
        return error.square().mean()

    def after(self, step: int) -> None:
        self.steps.append(step)


SETTINGS = Optimisation(updates=300, learning_rate=0.2, warmup=10, gradient_clip=10.0, average_decay=0.9)


class Stop(Exception):
    pass


def stop_at(step: int) -> Progress:
    def progress(done: int, total: int, note: str = "") -> None:
        if done >= step:
            raise Stop

    return progress


def weights(folder: Path) -> dict[str, Tensor]:
    return checkpoint.read(folder, "policy")[0]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_the_loop_fits_and_counts_its_updates(tmp_path: Path, silent: Progress) -> None:
    learner = Line()
    training = train(learner, SETTINGS, tmp_path, "i", silent)
    assert learner.steps == list(range(300))
    average = training.averaged()
    assert float(average["weight"]) == pytest.approx(3, abs=0.1)
    assert float(average["bias"]) == pytest.approx(1, abs=0.1)
    assert float(training.mean_loss) < 0.05


def test_progress_hears_of_the_end(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    train(
        Line(), replace(SETTINGS, updates=50), tmp_path, "i", lambda done, total, note="": calls.append((done, total))
    )
    assert calls == [(20, 50), (40, 50), (50, 50)]


def test_the_learning_rate_rises_and_falls() -> None:
    settings = Optimisation(updates=100, learning_rate=1.0, warmup=10, first_learning_rate=0.1)
    rates = [learning_rate(settings, step) for step in range(101)]
    assert rates[9] == rates[10] == 1.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[0] == pytest.approx(0.19)
    assert rates[100] == pytest.approx(0.1)


@pytest.mark.parametrize("device", ["cpu", "meta"])  # meta: as any device on which the optimiser is not fused
def test_the_optimiser_counts_where_it_can_read_without_waiting(device: str) -> None:
    learner = Line()
    learner.module = nn.Linear(1, 1, device=device)
    training = Training(learner, SETTINGS)
    assert {state["step"].device.type for state in training.optimiser.state.values()} == {"cpu"}
    assert {state["exp_avg"].device.type for state in training.optimiser.state.values()} == {device}


def test_a_loss_that_is_not_a_number_fails_with_its_place(tmp_path: Path, silent: Progress) -> None:
    with pytest.raises(RunFailed, match=r"loss is (nan|inf) at update 60; lower the learning rate"):
        train(Line(poison=45), SETTINGS, tmp_path, "i", silent)


@pytest.mark.parametrize("poison", [299, 199])  # in the last update, and in one that is saved
def test_a_policy_that_diverged_is_not_taken_up_again(tmp_path: Path, silent: Progress, poison: int) -> None:
    for _ in range(2):
        with pytest.raises(RunFailed, match=r"loss is (nan|inf)"):
            train(Line(poison), SETTINGS, tmp_path, "line", silent)
    train(Line(), SETTINGS, tmp_path, "line", silent)


def test_weights_that_the_last_update_ruined_are_not_kept(tmp_path: Path, silent: Progress) -> None:
    class Cliff(Line):
        """Its last gradient is infinite although its last loss is not."""

        def loss(self, draw: Draw) -> Tensor:
            loss = super().loss(draw)
            return loss + (torch.zeros(1) * self.module.weight[0]).sqrt().sum() if draw["step"] == 299 else loss

    with pytest.raises(RunFailed, match="the last update produced weights that are not finite; lower"):
        train(Cliff(), SETTINGS, tmp_path, "id", silent)
    assert not list(tmp_path.glob("resume-000000300*"))


def test_a_stop_at_any_report_resumes_to_the_same_weights(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    train_diffusion(table, tiny, 5, tmp_path / "whole", silent)
    for step in (20, 40):
        with pytest.raises(Stop):
            train_diffusion(table, tiny, 5, tmp_path / "parts", stop_at(step), checkpoint_every=25)
        assert checkpoint.ResumePoints(tmp_path / "parts").steps()[-1] == step
    train_diffusion(table, tiny, 5, tmp_path / "parts", silent)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert not list((tmp_path / "parts").glob("resume-*"))


def test_a_damaged_checkpoint_costs_only_the_updates_since_the_one_before(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    train_diffusion(table, tiny, 5, tmp_path / "whole", silent)
    with pytest.raises(Stop):
        train_diffusion(table, tiny, 5, tmp_path / "parts", stop_at(40), checkpoint_every=20)
    newest = tmp_path / "parts" / "resume-000000040.safetensors"
    newest.write_bytes(newest.read_bytes()[:100])
    seen: list[int] = []
    train_diffusion(table, tiny, 5, tmp_path / "parts", lambda done, total, note="": seen.append(done))
    assert seen == [40, 60]  # went on from 20
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_another_training_in_the_folder_is_an_error(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    with pytest.raises(Stop):
        train_diffusion(table, tiny, 5, tmp_path, stop_at(20))
    with pytest.raises(CheckpointError, match="other data, settings or seed; give this training a folder"):
        train_diffusion(table, tiny, 6, tmp_path, silent)
    with pytest.raises(CheckpointError, match="other data"):
        train_diffusion(table.select(table.ids[:5]), tiny, 5, tmp_path, silent)
    train_diffusion(table, tiny, 5, tmp_path, silent)
    with pytest.raises(CheckpointError, match="other data"):
        train_diffusion(table, replace(tiny, learning_rate=0.1), 5, tmp_path, silent)


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import torch
torch.set_num_threads(1)
from conftest import dots
from factored_scaling.policies.diffusion import DiffusionConfig, train_diffusion
def progress(done, total, note=""):
    if done == 40:
        os.kill(os.getpid(), signal.SIGKILL)
config = DiffusionConfig.from_mapping({"preset": "paper", **eval(sys.argv[3])})
train_diffusion(dots(12), config, 5, Path(sys.argv[1]), progress, checkpoint_every=15)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_kill_in_the_middle_resumes_to_the_same_weights(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    arguments = [str(tmp_path / "killed"), str(Path(__file__).parent), repr(tiny.to_mapping())]
    out = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert out.returncode == -signal.SIGKILL, out.stderr
    assert checkpoint.ResumePoints(tmp_path / "killed").steps() == [15, 30]
    train_diffusion(table, tiny, 5, tmp_path / "killed", silent)
    train_diffusion(table, tiny, 5, tmp_path / "whole", silent)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
