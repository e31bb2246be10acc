"""A tiny closed loop on each task: collect, train a few steps, evaluate, record rows; and pictures of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tests.sim.maniskill_cases import needs_maniskill

from factored_scaling.backends.simulation import Lab
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, UnknownFactor
from factored_scaling.runner.carry_out import carry_out
from factored_scaling.runner.options import WorkOptions, run_folder
from factored_scaling.sim.maniskill import ManiSkillTask
from factored_scaling.study import Study

pytestmark = pytest.mark.slow  # every one starts simulator processes

POLICY = {"preset": "small", "updates": 6, "image_size": 32, "batch": 8}


class _Quiet:
    stopping = False
    training = False

    def say(self, message: Any) -> None:
        """Nobody listens."""

    def check(self) -> None:
        """Nobody stops it."""


@pytest.mark.parametrize("name", ["maniskill/pick-place", "maniskill/peg-visual", "maniskill/pull-spatial"])
def test_collect_train_evaluate_and_record(name: str, tmp_path: Path) -> None:
    needs_maniskill()
    torch.set_num_threads(1)
    factors = {"camera_pose": 1, "lighting": 1} if name != "maniskill/pull-spatial" else {"object_pose": 2}
    spec = StudySpec(
        factors=factors,
        nominal=1,
        construction="one",
        points=2,
        task=name,
        policy=POLICY,
        evaluation={"settings": 1, "initial_states": 1},
        name="tiny",
    )
    with Study.create(spec, tmp_path / "study.db") as study:
        lab = Lab(name, tmp_path, image_size=32)
        assert isinstance(lab.task, ManiSkillTask)
        lab.task.max_steps = 48
        run = study.ask(1)[0]
        carry_out(study, run, lab, _Quiet(), WorkOptions())
        done = study.find_run(run.id)
        assert done.state == "done", (run_folder(tmp_path, run.spec.digest) / "log.txt").read_text()
        trials = study.store.trials(run.id)
        assert [trial.key for trial in trials] == [f"{factor}/0/0" for factor in factors]
        assert {trial.score for trial in trials} <= {0.0, 1.0}
        if name == "maniskill/pull-spatial":
            _check_videos(run_folder(tmp_path, run.spec.digest), tmp_path)
        lab.task.close()


def _check_videos(folder: Path, into: Path) -> None:
    """The command line shows the policy's failures."""
    from factored_scaling.cli.sim import sim_command

    out = into / "failures.mp4"
    arguments = ["video", "maniskill/pull-spatial", "--policy", str(folder), "--failures", "--factor", "lighting"]
    answer = CliRunner().invoke(sim_command, [*arguments, "--out", str(out)], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    assert "212 frames" in answer.output  # 200 steps, and the last one held
    assert out.stat().st_size > 10_000


def test_a_sheet_of_one_factor_and_its_mistakes(tmp_path: Path) -> None:
    needs_maniskill()
    from PIL import Image

    from factored_scaling.cli.sim import sim_command

    def invoke(*arguments: str) -> str:
        return CliRunner().invoke(sim_command, arguments, catch_exceptions=False).output

    out = tmp_path / "sheet.png"
    assert "wrote" in invoke("show", "maniskill/pull-visual", "--factor", "table_texture", "--out", str(out))
    picture = np.asarray(Image.open(out).convert("RGB"))
    assert picture.std() > 20
    with pytest.raises(UnknownFactor, match="did you mean lighting"):
        invoke("show", "maniskill/pull-visual", "--factor", "lightin", "--out", str(out))
    with pytest.raises(InvalidInput, match=r"must end in \.png"):
        invoke("show", "maniskill/pull-visual", "--out", str(tmp_path / "sheet.gif"))
    with pytest.raises(InvalidInput, match="no policy that could fail"):
        invoke("video", "maniskill/pull-visual", "--failures", "--out", str(tmp_path / "x.mp4"))
    assert "maniskill/peg-spatial" in invoke("list")


def test_the_command_line_shows_the_embedded_simulator_as_well(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    from factored_scaling.cli.sim import sim_command

    sheet, video = str(tmp_path / "sheet.png"), str(tmp_path / "demo.mp4")
    arguments = ["show", "tabletop/insert", "--factor", "lighting", "--out", sheet]
    assert CliRunner().invoke(sim_command, arguments, catch_exceptions=False).exit_code == 0
    arguments = ["video", "tabletop/pick-place", "--factor", "distractor", "--out", video]
    answer = CliRunner().invoke(sim_command, arguments, catch_exceptions=False)
    assert answer.exit_code == 0
    assert Path(video).stat().st_size > 2_000


def test_a_still_has_a_row_of_moments_for_each_episode(tmp_path: Path) -> None:
    from PIL import Image

    from factored_scaling.cli.sim import sim_command

    out = tmp_path / "demos.png"
    arguments = ["video", "tabletop/insert", "--factor", "lighting", "--count", "3", "--out", str(out)]
    answer = CliRunner().invoke(sim_command, arguments, catch_exceptions=False)
    assert answer.output == f"wrote {out} (24 frames)\n"
    picture = np.asarray(Image.open(out).convert("RGB")).astype(int)
    rows = np.split(picture, 3)  # of one height
    tiles = [np.split(row, 8, axis=1)[index][20:-4] for row in rows for index in (0, 4, 7)]
    assert all(tile.std() > 20 for tile in tiles)
    assert np.abs(tiles[0] - tiles[1]).mean() > 5  # the episode goes on
    with pytest.raises(InvalidInput, match=r"must end in \.mp4 or \.png"):
        CliRunner().invoke(sim_command, [*arguments[:-1], str(tmp_path / "x.gif")], catch_exceptions=False)


def test_a_policys_failures_are_shown_for_every_factor(tmp_path: Path) -> None:
    from factored_scaling.cli.sim import _policy_clips
    from factored_scaling.policies.config import DiffusionConfig
    from factored_scaling.policies.diffusion import train_diffusion
    from factored_scaling.sim import DemoRequest, load_task

    task = load_task("tabletop/push", 24)
    table = task.demonstrate([DemoRequest("lighting/0", "lighting", 0)])
    config = DiffusionConfig.preset("small", updates=2, batch=4)
    train_diffusion(table, config, 0, tmp_path, lambda done, total, note="": None)
    clips = list(_policy_clips("tabletop/push", None, tmp_path, 5, True, "cpu"))
    assert sorted(clip.label.partition("/")[0] for clip in clips) == sorted(task.factors)
    assert all(clip.score < 1 for clip in clips)
