"""The `diffusion` trainer: our own diffusion policy on the episodes of a LeRobot dataset; people measure it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.backends.embedder import ProxySettings, varied_factors
from factored_scaling.backends.episodes import found_in
from factored_scaling.backends.outcome import Outcome, OutcomeBackend
from factored_scaling.backends.protocol import Context, Embeddings
from factored_scaling.core.checks import check_keys, shown, whole
from factored_scaling.core.design import RunSpec
from factored_scaling.data.frames import FrameTable
from factored_scaling.data.shelf import FrameShelf
from factored_scaling.errors import InvalidInput
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.progress import READING, Progress

if TYPE_CHECKING:
    from factored_scaling.backends import BackendRequest

IMAGE_SIZE = 96  # pixels a side: a whole dataset at this size fits into memory
AT_ONCE = 16  # episodes read between two saves of the cache


@dataclass(frozen=True)
class DiffusionSettings:
    """A study's `trainer:` and `policy:` for our own policy."""

    # the labelled LeRobot dataset
    dataset: Path
    config: DiffusionConfig
    # size of images in training
    image_size: int = IMAGE_SIZE
    # cameras of the policy; by default all
    cameras: tuple[str, ...] = ()
    # held-out scenes, for FSC-Proxy
    proxy: ProxySettings | None = None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], policy: Mapping[str, Any], home: Path) -> DiffusionSettings:
        """Read `trainer:` and `policy:`; paths are relative to the study's folder."""
        check_keys(data, ("kind", "dataset", "proxy"), "trainer")
        place = data.get("dataset")
        if not isinstance(place, str) or not place:
            raise InvalidInput("no dataset", where="dataset", hint="give the path of a labelled LeRobot dataset")
        cameras = policy.get("cameras", [])
        if not isinstance(cameras, list) or not all(isinstance(name, str) for name in cameras):
            raise InvalidInput(f"expected a list of cameras, not {shown(cameras)}", where="policy.cameras")
        size = whole(policy.get("image_size", IMAGE_SIZE), "policy.image_size", least=8, what="value")
        own = {key: value for key, value in policy.items() if key not in ("image_size", "cameras")}
        try:
            config = DiffusionConfig.from_mapping(own)
        except InvalidInput as error:
            raise error.at("policy") from None
        proxy = ProxySettings.from_mapping(data.get("proxy"), "diffusion", home)
        return cls(home / Path(place).expanduser(), config, size, tuple(cameras), proxy)


class DiffusionBackend(OutcomeBackend):
    """Trains runs, singly or as one job. Frames of their episodes are read once and cached in STUDY/demos."""

    in_process = True

    def __init__(self, settings: DiffusionSettings, home: Path, device: str | None = None) -> None:
        self.settings = settings
        self.folder = home.resolve()
        self._device = device or "cpu"
        cameras = "".join(f"-{name}" for name in settings.cameras)
        self._shelf = FrameShelf(self.folder / "demos" / f"lerobot-{settings.image_size}{cameras}")

    @classmethod
    def from_request(cls, request: BackendRequest) -> DiffusionBackend:
        """The backend that a study's `trainer:` and `policy:` describe."""
        settings = DiffusionSettings.from_mapping(request.settings, request.policy, request.folder.resolve())
        return cls(settings, request.folder, request.device)

    def describe(self) -> dict[str, Any]:
        """The training settings, for the record."""
        return {"kind": "diffusion"}

    def notice(self) -> str:
        """A notice for studies that get this backend by default."""
        return f"our own diffusion policy, {self.settings.config.updates:,} updates for each run"

    def check(self, episodes: Sequence[str]) -> None:
        """Check that the dataset holds the episodes whose frames are not cached yet."""
        missing = self._shelf.missing(episodes)
        if missing:
            found_in(self.settings.dataset, missing)

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Train the run's policy in `folder`, from its last checkpoint."""
        from factored_scaling.policies.diffusion import train_diffusion

        table = self._table(run.episodes, progress)
        train_diffusion(table, self.settings.config, run.seed, folder, progress, self._device, episodes=run.episodes)

    def train_many(self, runs: Sequence[RunSpec], folders: Sequence[Path], context: Context) -> dict[Path, str]:
        """Train several runs' policies as one job, from their last checkpoints; returns the errors of failed ones.

        On a GPU `context.together` policies are trained together, or as many as its free memory allows.
        """
        from factored_scaling.policies.capacity import train_within
        from factored_scaling.policies.many import Job

        jobs = [
            Job(run.episodes, self.settings.config, run.seed, folder) for run, folder in zip(runs, folders, strict=True)
        ]
        table = self._table([id_ for run in runs for id_ in run.episodes], context)
        return train_within(table, jobs, context, self._device, context.together)

    def outcome(self, run: RunSpec, folder: Path, factors: Sequence[str], progress: Progress) -> Outcome:
        """Record the policy's path. People evaluate it on the robot."""
        from factored_scaling.policies.checkpoint import read_description
        from factored_scaling.policies.diffusion import NAME

        described = read_description(folder, NAME)
        return Outcome(policy=".", metrics={"final_loss": described["final_loss"], "updates": described["updates"]})

    def embed(self, run: RunSpec, folder: Path, context: Context) -> Embeddings | None:
        """The vision encoder's embeddings of first observations, for studies that name held-out scenes under `proxy`.

        One row per episode of the run, and one per episode of the held-out dataset, in the order of their numbers.
        """
        if self.settings.proxy is None:
            return None
        from factored_scaling.policies.diffusion import load_policy

        policy, scenes = load_policy(folder, self._device), self.settings.proxy.held_out
        self._read(run.episodes, context)
        trained = policy.embed(np.ascontiguousarray(self._shelf.first_images(run.episodes)))
        held_out = policy.embed(np.ascontiguousarray(self._held_out_images(scenes)))
        return Embeddings(trained, held_out, tuple(varied_factors(scenes)))

    def _held_out_images(self, root: Path) -> NDArray[np.uint8]:
        """The first images of every episode of a dataset, at the policy's size."""
        from factored_scaling.data.lerobot.dataset import LerobotDataset
        from factored_scaling.data.lerobot.pictures import first_pictures, resized

        names = self.settings.cameras or LerobotDataset.open(self.settings.dataset).cameras
        held_out = LerobotDataset.open(root)
        missing = [name for name in names if name not in held_out.cameras]
        if missing:
            hint = f"it has {', '.join(held_out.cameras)}"
            raise InvalidInput(f"has no {missing[0]}, which the policy looks at", where=str(held_out.root), hint=hint)
        seen = [first_pictures(held_out, name, partial(resized, size=self.settings.image_size)) for name in names]
        rows = [np.stack([pictures[e.index] for pictures in seen]) for e in held_out.episodes]
        return np.stack(rows).transpose(0, 1, 4, 2, 3)

    def frames(self, ids: Sequence[str], progress: Progress) -> FrameTable:
        """The episodes' frames at the policy's size, from the cache or the dataset."""
        self._read(ids, progress)
        return self._shelf.select(ids)

    def _table(self, ids: Sequence[str], progress: Progress) -> FrameTable:
        """A table that holds these episodes, for training; an error if they cannot be used."""
        self._read(ids, progress)
        table = self._shelf.holding(ids)
        if self.settings.config.relative_actions and table.state.shape != table.action.shape:
            what = f"states have {table.state.shape[1]} numbers, actions {table.action.shape[1]}"
            raise InvalidInput(what, where="policy.relative_actions", hint="leave it off for this dataset")
        return table

    def _read(self, wanted: Sequence[str], progress: Progress) -> None:
        """Read the episodes that are not in the cache from the dataset."""
        from factored_scaling.data.lerobot.labels import read_labels
        from factored_scaling.data.lerobot.table import frame_table

        ids = self._shelf.missing(wanted)
        if not ids:
            return
        dataset, found = found_in(self.settings.dataset, ids)
        numbers, labels = dict(zip(ids, found, strict=True)), read_labels(dataset.root)
        for start in range(0, len(ids), AT_ONCE):
            progress(start, len(ids), READING)
            batch = ids[start : start + AT_ONCE]
            varied = {id_: labels[id_].factors[:1] if id_ in labels else () for id_ in batch}
            named = {numbers[id_]: (id_, next(iter(varied[id_]), None)) for id_ in batch}
            table = frame_table(dataset, named, self.settings.image_size, self.settings.cameras)
            self._shelf.add(table, hashlib.sha256(repr(batch).encode()).hexdigest()[:16])
        progress(len(ids), len(ids), READING)
