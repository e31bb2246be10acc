"""Many policies as one job; here by the plain path, on a GPU by captured graphs (`train_throughput.py --check`)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import RunFailed
from factored_scaling.policies import many
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import build_learner, keep_policy, load_policy, train_diffusion
from factored_scaling.policies.many import Job, _identity, frames_on, free_memory, train_many
from factored_scaling.policies.training import Training, identity_of
from factored_scaling.policies.windows import DeviceFrames

# compiling, torch warns of itself and of matrix products that could be faster
ON_A_GPU = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
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


@pytest.mark.slow
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


@pytest.mark.parametrize("device", DEVICES)
def test_draws_depend_on_the_seed_and_the_update_alone(
    make_dots: Callable[..., FrameTable], tiny: DiffusionConfig, device: str
) -> None:
    frames, config = DeviceFrames.of(make_dots(5), device), replace(tiny, shift=2)
    rows = torch.arange(40, 60, device=device)
    one, other = (build_learner(frames, rows, config, 3) for _ in range(2))
    forwards = [one.draw(step) for step in range(70)]
    for step in (69, 2, 64, 63):
        again = other.draw(step)
        assert all(torch.equal(forwards[step][name], again[name]) for name in again)
    assert not torch.equal(forwards[0]["noise"], forwards[1]["noise"])
    assert {int(frame) for draw in forwards for frame in draw["frame"]} == set(range(40, 60))
    moves = torch.stack([draw["shift"] for draw in forwards])
    assert moves.shape[1:] == (config.batch, 1, 2)
    assert set(moves.flatten().tolist()) == {-2, -1, 0, 1, 2}


def test_pictures_that_the_device_has_no_room_for_stay_where_they_are(
    make_dots: Callable[..., FrameTable], tiny: DiffusionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_dots(5)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (table.images.nbytes, 0))
    frames = frames_on(table, "cpu")
    assert frames.images.data_ptr() == table.images.ctypes.data  # neither copied nor locked
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * table.images.nbytes, 0))
    resident = frames_on(table, "cpu")
    rows = torch.arange(60)
    learners = [build_learner(one, rows, tiny, 0) for one in (frames, resident)]
    learners[0]._streams = True  # as where the frames lie elsewhere than the policy
    draws = [learner.draw(7) for learner in learners]
    assert draws[0].keys() - draws[1].keys() == {"images"}
    assert torch.equal(draws[0]["images"], frames.images[draws[1]["frame"]])
    losses = [float(learner.loss(draw).detach()) for learner, draw in zip(learners, draws, strict=True)]
    assert losses[0] == losses[1]


def test_memory_that_torch_keeps_for_later_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = [30]
    monkeypatch.setattr(torch.cuda, "empty_cache", kept.clear)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 - sum(kept), 100))
    assert free_memory("cuda:1") == 100


def test_a_lack_of_memory_says_what_to_do(
    tmp_path: Path, make_dots: Callable[..., FrameTable], tiny: DiffusionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> DeviceFrames:
        told = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB of which 1 GiB is free"
        raise torch.cuda.OutOfMemoryError(f"CUDA out of memory. {told}. If reserved memory is large, try PYTORCH_X")

    monkeypatch.setattr(many, "frames_on", full)
    table = make_dots(2)
    jobs = [Job(table.ids, tiny, seed, tmp_path / str(seed)) for seed in range(3)]
    with pytest.raises(
        RunFailed, match=r"2 policies at once: Tried .* 1 GiB is free; fewer at once \(--together\)"
    ) as told:
        train_many(table, jobs, silent, "cuda", side_by_side=2)
    assert "PYTORCH" not in str(told.value)


class Glider:
    """A flight without an engine: the plain update in place of a captured one."""

    class Stream:
        def synchronize(self) -> None: ...

    def __init__(self, table: FrameTable, job: Job) -> None:
        self.job, self.stream, self.captured, self.saved, self.failure = job, self.Stream(), False, 0, ""
        frames = DeviceFrames.of(table, "cpu")
        self.learner = build_learner(frames, torch.arange(len(table.images)), job.config, job.seed)
        self.training = Training(self.learner, job.config.optimisation)

    def capture(self) -> None:
        self.captured = True

    def advance(self) -> None:
        self.training.update()

    def loss(self) -> float:
        return float(self.training.mean_loss)

    def save(self) -> None:
        self.saved += 1

    def land(self) -> None:
        keep_policy(self.training, self.learner, self.job.episodes, "id", self.job.folder)

    @property
    def over(self) -> bool:
        return self.training.step >= self.job.config.updates


class Stop(Exception):
    pass


def test_a_stop_need_not_wait_for_all_captures_and_later_saves_those_in_flight(
    tmp_path: Path, make_dots: Callable[..., FrameTable], tiny: DiffusionConfig
) -> None:
    table = make_dots(4)
    jobs = [Job(table.ids, replace(tiny, updates=updates), 0, tmp_path / str(updates)) for updates in (20, 60)]
    for calls, captured, saved in ((1, [True, False], [0, 0]), (3, [True, True], [0, 1])):
        flights = [Glider(table, job) for job in jobs]
        heard: list[tuple[int, int]] = []

        def stop(
            done: int, total: int, note: str = "", heard: list[tuple[int, int]] = heard, calls: int = calls
        ) -> None:
            heard.append((done, total))
            if len(heard) == calls:
                raise Stop

        with pytest.raises(Stop):
            many._fly(flights, 2000, {}, stop)  # type: ignore[arg-type]
        assert [flight.captured for flight in flights] == captured
        assert [flight.saved for flight in flights] == saved
    assert heard == [(0, 80), (0, 80), (40, 80)]
    assert (jobs[0].folder / "policy.json").exists()


def test_a_policy_that_the_last_update_ruined_fails_alone(
    tmp_path: Path, make_dots: Callable[..., FrameTable], tiny: DiffusionConfig
) -> None:
    table = make_dots(4)
    flights = [Glider(table, Job(table.ids, replace(tiny, updates=5), seed, tmp_path / str(seed))) for seed in (0, 1)]

    def ruin(step: int) -> None:
        if step == 4:
            next(iter(flights[1].training.average.values())).fill_(torch.nan)

    flights[1].learner.after = ruin  # type: ignore[method-assign]
    failures: dict[Path, str] = {}
    many._fly(flights, 2000, failures, silent)  # type: ignore[arg-type]
    assert failures == {tmp_path / "1": "the last update produced weights that are not finite; lower the learning rate"}
    assert (tmp_path / "0" / "policy.json").exists()
    assert not (tmp_path / "1").exists()


class NoStream:
    """Stands for a stream where there is none: everything has been done already."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def wait_stream(self, other: object) -> None: ...

    def synchronize(self) -> None: ...


@pytest.mark.parametrize("hip", [None, "6.4"])
def test_updates_that_cannot_be_captured_are_launched_plainly(
    tmp_path: Path,
    make_dots: Callable[..., FrameTable],
    tiny: DiffusionConfig,
    monkeypatch: pytest.MonkeyPatch,
    hip: str | None,
) -> None:
    """The path of a GPU on the CPU, with the capture failing as drivers let it fail, or not tried as on AMD."""

    class Refused(contextlib.nullcontext[None]):
        def __enter__(self) -> None:
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "Stream", NoStream)
    monkeypatch.setattr(torch.cuda, "current_stream", NoStream)
    for name in ("stream", "device"):
        monkeypatch.setattr(torch.cuda, name, lambda given: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: Refused())
    monkeypatch.setattr(many, "frames_on", lambda table, device: DeviceFrames.of(table, "cpu"))
    table = make_dots(4)
    notes: list[str] = []
    jobs = [Job(table.ids[: 3 + seed], replace(tiny, updates=25), seed, tmp_path / str(seed)) for seed in range(2)]

    def hear(done: int, total: int, note: str = "") -> None:
        notes.append(note)

    assert train_many(table, jobs, hear, "cuda", compiled=False) == {}
    assert "not captured (an AMD GPU)" in notes[-1] if hip else "not captured (operation not permitted" in notes[-1]
    for job in jobs:
        alone = tmp_path / f"alone-{job.seed}"
        train_diffusion(table.select(job.episodes), job.config, job.seed, alone, silent)
        one, other = (load_policy(place).state_dict() for place in (job.folder, alone))
        assert all(torch.equal(one[name], other[name]) for name in one)
