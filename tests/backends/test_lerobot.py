"""The lerobot trainer with a stand-in for LeRobot; tests/lerobot_real has the real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.backends.heard import Heard
from tests.backends.made import backend_of
from tests.cli.conftest import run_fsc
from tests.data.lerobot_cases import write

from factored_scaling.backends.lerobot import LAST, LerobotBackend, LerobotPolicy
from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import Label, check_labels, read_labels, write_labels
from factored_scaling.errors import InvalidInput, RunFailed
from factored_scaling.io.files import write_study
from factored_scaling.study import Study

DOUBLE = Path(__file__).parent / "double"
POLICY = {"type": "diffusion", "steps": 10, "batch_size": 4, "options": {"horizon": 8, "down_dims": [32, 64]}}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write(tmp_path / "data", range(5))
    (tmp_path / "run").mkdir()
    return tmp_path


def trainer(home: Path, policy: dict[str, Any] | None = None, **settings: Any) -> LerobotBackend:
    environment = {"PYTHONPATH": str(DOUBLE), **settings.pop("environment", {})}
    common = {"kind": "lerobot", "python": sys.executable, "dataset": "data", "environment": environment}
    made = backend_of({**common, **settings}, policy or POLICY, home, settings.pop("device", None))
    assert isinstance(made, LerobotBackend)
    return made


def run(home: Path, *episodes: int, policy: dict[str, Any] | None = None) -> RunSpec:
    ids = episode_ids(LerobotDataset.open(home / "data"))
    return RunSpec(tuple(ids[index] for index in episodes), policy=policy or POLICY, seed=3)


def command(home: Path) -> list[str]:
    words: list[str] = json.loads((home / "run" / "train.begun.json").read_text())["command"]
    return words


def test_lerobot_trains_on_the_chosen_episodes_and_leaves_its_checkpoint(home: Path) -> None:
    made, heard = trainer(home, saves=5), Heard()
    assert made.version == "0.4.4"
    made.train(run(home, 1, 4), home / "run", heard)
    words = command(home)
    assert words[1:3] == ["-m", "lerobot.scripts.lerobot_train"]
    flags = ["--policy.type=diffusion", "--policy.horizon=8", "--policy.down_dims=[32, 64]", "--steps=10", "--seed=3"]
    assert set(flags) <= set(words)
    assert len({word.partition("=")[0] for word in words}) == len(words)  # LeRobot takes an option once
    assert not [word for word in words if "episodes=" in word or "device" in word]
    assert "num_episodes=2" in (home / "run" / "train.log").read_text()
    assert heard.told[-1][:2] == (10, 10)
    outcome = made.outcome(run(home, 1, 4), home / "run", (), heard)
    assert not outcome.measured
    assert (outcome.policy, outcome.metrics["loss"]) == ("lerobot/checkpoints/000010/pretrained_model", 0.1)
    note = json.loads((home / "run" / LAST / "fsc_selection.json").read_text())
    assert note["episodes"] == [1, 4]
    assert note["statistics"]["of"] == "the episodes listed here, and no others"
    assert [path.name for path in (home / "run/lerobot/checkpoints").iterdir() if not path.is_symlink()] == ["000010"]
    assert not (home / "run" / "dataset").exists()


def test_a_stopped_training_goes_on_from_its_last_checkpoint(home: Path) -> None:
    made = trainer(home, environment={"DOUBLE_PAUSE": "0.05"})
    with pytest.raises(KeyboardInterrupt):
        made.train(run(home, 0, 2), home / "run", Heard(lambda done: done >= 5))
    saved = sorted(path.name for path in (home / "run/lerobot/checkpoints").glob("0*"))
    assert len(saved) <= 3
    heard = Heard()
    made.train(run(home, 0, 2), home / "run", heard)
    assert command(home)[-1] == "--resume=true"
    assert min(done for done, _, note in heard.told if "Training" in note or "loss" in note) > 4  # counted from there
    assert made.outcome(run(home, 0, 2), home / "run", (), heard).policy.endswith("000010/pretrained_model")


def test_a_failed_start_without_a_checkpoint_is_started_anew(home: Path) -> None:
    (home / "run" / "lerobot").mkdir()
    made = trainer(home)
    made.train(run(home, 0), home / "run", Heard())
    assert "--resume=true" not in command(home)


def test_placeholders_in_the_environment_are_filled_in(home: Path) -> None:
    told = (
        "import json, os; json.dump({'scores': 0.5, 'metrics': dict(os.environ)}, open(os.environ['FSC_RESULT'], 'w'))"
    )
    environment = {"DOUBLE_PAUSE": "0.00{seed}", "LABEL": "{policy.type} in {checkpoint}"}  # a pause must be a number
    made = trainer(home, evaluate=[sys.executable, "-c", told], environment=environment)
    made.train(run(home, 0), home / "run", Heard())
    metrics = made.outcome(run(home, 0), home / "run", (), Heard()).metrics
    assert (metrics["DOUBLE_PAUSE"], metrics["LABEL"]) == ("0.003", f"diffusion in {(home / 'run' / LAST).resolve()}")


def test_a_folder_that_is_not_there_is_told(home: Path) -> None:
    made = trainer(home, evaluate="true", directory="nowhere")
    made.train(run(home, 0), home / "run", Heard())
    with pytest.raises(InvalidInput, match=r"trainer\.directory: .*nowhere: no such folder"):
        made.outcome(run(home, 0), home / "run", (), Heard())


def test_a_pretrained_policy_that_was_not_loaded_is_refused_at_once(home: Path) -> None:
    policy = {"preset": "pi0", "options": {"pretrained_path": str(home / "nowhere")}}
    made = trainer(home, policy, environment={"DOUBLE_PAUSE": "0.05"})
    with pytest.raises(InvalidInput, match=r"nowhere was not loaded whole; .*random weights"):
        made.train(run(home, 0, policy=policy), home / "run", Heard())
    assert not (home / "run" / LAST).exists()
    policy["options"] = {"pretrained_path": str(home)}
    small = {**policy, "steps": 3}
    trainer(home, small).train(run(home, 0, policy=small), home / "run", Heard())


def test_the_paper_s_recipe_for_pi0() -> None:
    policy = LerobotPolicy.from_mapping({"preset": "pi0", "training": {"optimizer.lr": 2e-5}})
    assert policy.flags() == [
        "--policy.type=pi0",
        "--steps=10000",
        "--batch_size=32",
        "--policy.pretrained_path=lerobot/pi0_base",
        "--policy.train_expert_only=true",
        "--policy.freeze_vision_encoder=true",
        "--policy.dtype=bfloat16",
        "--policy.gradient_checkpointing=true",
        "--optimizer.lr=2e-05",
    ]


def test_a_training_that_leaves_nothing_is_a_failure(home: Path) -> None:
    made = trainer(home, environment={"DOUBLE_LOSES": "1"})
    with pytest.raises(RunFailed, match=r"left no config\.json; see .*train\.log"):
        made.train(run(home, 0), home / "run", Heard())


def test_an_evaluation_of_ones_own_gets_the_checkpoint(home: Path) -> None:
    told = "{'scores': 0.5, 'metrics': {'seen': sys.argv[1]}}"
    code = f"import json, os, sys; json.dump({told}, open(os.environ['FSC_RESULT'], 'w'))"
    made = trainer(home, evaluate=[sys.executable, "-c", code, "{checkpoint}"])
    made.train(run(home, 0), home / "run", Heard())
    outcome = made.outcome(run(home, 0), home / "run", (), Heard())
    assert [score.score for score in outcome.scores] == [0.5]
    assert outcome.metrics["seen"].endswith("000010/pretrained_model")
    assert Path(outcome.metrics["seen"]).is_dir()


def test_unknown_episodes_are_told(home: Path) -> None:
    with pytest.raises(InvalidInput, match="no episode with id lighting/3"):
        trainer(home).train(RunSpec(("lighting/3",), policy=POLICY), home / "run", Heard())


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        ({"steps": 3}, {}, "policy: no type"),
        ({"type": "act"}, {}, "policy: no steps"),
        ({"type": "act", "steps": 0}, {}, r"policy\.steps"),
        ({"type": "act", "steps": 3, "horizon": 8}, {}, "belong under `options:`"),
        ({"preset": "pi1"}, {}, "did you mean pi0"),
        ({"type": "act", "steps": 3, "options": {"device": "cpu"}}, {}, "policy.device is set by the study"),
        ({"type": "act", "steps": 3, "training": {"seed": 1}}, {}, "seed is set by the study"),
        ({"type": "act", "steps": 3, "options": [1]}, {}, "expected a mapping"),
        (POLICY, {"arguments": ["--output_dir=x"]}, "output_dir is set by the study"),
        (POLICY, {"arguments": ["num_workers=1"]}, "list of options"),
        (POLICY, {"dataset": "nowhere"}, r"trainer\.dataset: .*nowhere: no such path"),
        (POLICY, {"python": ""}, "no python"),
        (POLICY, {"python": "data"}, "cannot be run"),
        (POLICY, {"environment": {"PYTHONPATH": ""}}, "has no LeRobot"),
        (POLICY, {"command": "x"}, "unknown key 'command'"),
        (POLICY, {"evaluate": "x {chekpoint}"}, r"did you mean \{checkpoint\}"),
        (POLICY, {"saves": 0}, r"trainer\.saves"),
    ],
)
def test_mistakes_are_told_before_anything_is_spent(
    home: Path, policy: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        trainer(home, policy, **settings)


def test_a_version_that_reads_another_layout_is_refused(home: Path) -> None:
    old = home / "old" / "lerobot-0.3.3.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: lerobot\nVersion: 0.3.3\n")
    with pytest.raises(InvalidInput, match=r"LeRobot 0\.3\.3, which is too old; 0\.4\.0 and later"):
        trainer(home, environment={"PYTHONPATH": str(home / "old")})


@pytest.mark.slow
def test_fsc_run_trains_a_study_of_a_labelled_dataset(home: Path) -> None:
    dataset = LerobotDataset.open(home / "data")
    factors = ((), ("lighting",), ("lighting",), ("camera_pose",), ("camera_pose",))
    ids = episode_ids(dataset)
    write_labels(home / "data", [Label(ids[index], index, varied) for index, varied in enumerate(factors)])
    study = StudySpec(
        factors={"lighting": 2, "camera_pose": 2},
        nominal=1,
        construction="one",
        points=2,
        name="towel",
        dataset="../data",
        policy=POLICY,
        trainer={"kind": "lerobot", "python": sys.executable, "environment": {"PYTHONPATH": str(DOUBLE)}},
    )
    place = home / "towel"
    write_study(study, place / "study.yaml")
    Study.create(
        study, place / "study.db", check_labels(episode_ids(dataset), read_labels(home / "data")).dataset()
    ).close()
    done = run_fsc("run", place)
    assert done.returncode == 0, done.stderr
    assert "3 policies are trained and wait for trials" in done.stdout
    with Study.open(place / "study.db") as opened:
        kept = {row.key: row.body for row in opened.store.documents(opened.id, "trained")}
        assert {run.digest for run in opened.runs()} == set(kept)
    assert all(Path(body["policy"]).is_dir() and body["trainer"]["version"] == "0.4.4" for body in kept.values())
    assert run_fsc("run", place).returncode == 0


@pytest.mark.slow
def test_a_study_has_proxy_scores_before_anything_is_measured(home: Path) -> None:
    write(home / "held", (1, 2, 7, 8))  # two of them look like episodes of the study
    held = episode_ids(LerobotDataset.open(home / "held"))
    names = ("lighting", "lighting", "camera_pose", "camera_pose")
    write_labels(home / "held", [Label(held[index], index, (name,)) for index, name in enumerate(names)])
    ids = episode_ids(LerobotDataset.open(home / "data"))
    episodes = Dataset(
        tuple(Episode(ids[i], name) for i, name in ((1, "lighting"), (2, "lighting"), (3, "camera_pose")))
    )
    trainer = {
        "kind": "lerobot",
        "python": sys.executable,
        "environment": {"PYTHONPATH": str(DOUBLE)},
        "proxy": {"held_out": "held"},
    }
    factors = {"lighting": 2, "camera_pose": 1}
    study = StudySpec(factors, construction="one", points=2, dataset="data", policy=POLICY, trainer=trainer)
    write_study(study, home / "study.yaml")
    Study.create(study, home / "study.db", episodes).close()
    assert run_fsc("run", home).returncode == 0
    told = json.loads(run_fsc("proxy", home, "--json").stdout)
    scores = {tuple(run["demos"].items()): run["proxy"]["1"] for run in told["runs"]}
    whole, without = (("lighting", 2), ("camera_pose", 1)), (("lighting", 0), ("camera_pose", 1))
    assert scores[whole] > scores[without]  # it has seen the two held-out scenes
    with Study.open(home / "study.db") as opened:
        kept = opened.store.document(opened.id, "similarity", opened.runs()[0].digest)
        assert {run.state for run in opened.runs()} == {"trained"}
    assert kept is not None
    assert kept["factors"] == list(names)
    assert kept["nearest"]["1"][:2] == pytest.approx([1.0, 1.0], abs=1e-5)
