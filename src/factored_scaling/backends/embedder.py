"""FSC-Proxy for policies trained by LeRobot: embeddings of first observations, computed in LeRobot's environment."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.backends.command import listener
from factored_scaling.backends.process import run_command
from factored_scaling.core.checks import check_keys, shown
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.progress import Progress

if TYPE_CHECKING:
    from factored_scaling.data.lerobot.dataset import LerobotDataset

# by LeRobot's name of the policy, the default first
EMBEDDINGS = {"diffusion": ("vision",), "pi0": ("attention", "latent"), "pi05": ("attention", "latent")}


@dataclass(frozen=True)
class ProxySettings:
    """A study's `trainer.proxy`."""

    # a LeRobot dataset of held-out scenes, labelled by the factor each varies; first observations are enough
    held_out: Path
    # vision, attention or latent
    embedding: str
    # observations embedded at once
    batch: int

    @classmethod
    def from_mapping(cls, data: object, kind: str, home: Path) -> ProxySettings | None:
        """Read `trainer.proxy`; None when there is none."""
        if data is None:
            return None
        known = ("held_out", "embedding", "batch")
        if not isinstance(data, Mapping) or not isinstance(data.get("held_out"), str):
            raise InvalidInput("no held_out", where="trainer.proxy", hint="give the path of a labelled LeRobot dataset")
        check_keys(data, known, "trainer.proxy")
        if kind not in EMBEDDINGS:
            hint = f"there are embeddings of {', '.join(EMBEDDINGS)}"
            raise InvalidInput(f"no embedding of the policy {kind} is known", where="trainer.proxy", hint=hint)
        embedding, batch = data.get("embedding", EMBEDDINGS[kind][0]), data.get("batch", 16)
        if embedding not in EMBEDDINGS[kind]:
            raise UnknownName(str(embedding), EMBEDDINGS[kind], kind="embedding", where="trainer.proxy.embedding")
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise InvalidInput(f"expected a whole number, not {shown(batch)}", where="trainer.proxy.batch")
        path = (home / Path(data["held_out"]).expanduser()).resolve()
        if not path.exists():
            raise InvalidInput("no such path", where=f"trainer.proxy.held_out: {path}")
        return cls(path, embedding, batch)


def embedded(
    settings: ProxySettings,
    python: Path,
    environment: Mapping[str, str],
    device: str | None,
    folder: Path,
    progress: Progress,
    dataset: LerobotDataset,
    indices: Sequence[int],
) -> NDArray[np.float32]:
    """The embedding of each episode's first observation by the policy in a run's folder, one row each."""
    from factored_scaling.backends.lerobot import read_checkpoint

    checkpoint = read_checkpoint(folder)
    with tempfile.TemporaryDirectory(prefix="fsc-embed-", dir=folder) as place:
        observations, tasks = first_observations(dataset, indices, checkpoint)
        np.savez(Path(place) / "observations.npz", **observations)  # type: ignore[arg-type]
        result = Path(place) / "embedding.npy"
        plan = {
            "job": "embed",
            "checkpoint": str(checkpoint),
            "embedding": settings.embedding,
            "observations": str(Path(place) / "observations.npz"),
            "tasks": tasks,
            "batch": settings.batch,
            "seed": 0,
            "device": device,
            "result": str(result),
        }
        (Path(place) / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        program = Path(__file__).parent / "elsewhere" / "jobs.py"
        command = [str(python), str(program), str(Path(place) / "plan.json")]
        run_command(command, folder, environment, folder / "embed.log", listener("", progress))
        rows: NDArray[np.float32] = np.load(result)
    return rows


def varied_factors(root: Path) -> list[str | None]:
    """The factor that each episode of a labelled dataset varies, by number; None where it is not one factor."""
    from factored_scaling.data.lerobot.dataset import LerobotDataset
    from factored_scaling.data.lerobot.identity import episode_ids
    from factored_scaling.data.lerobot.labels import check_labels, read_labels

    dataset = LerobotDataset.open(root)
    labels = check_labels(episode_ids(dataset), read_labels(root)).labels
    varied = [labels[entry.index].factors if entry.index in labels else () for entry in dataset.episodes]
    return [names[0] if len(names) == 1 else None for names in varied]


def first_observations(
    dataset: LerobotDataset, indices: Sequence[int], checkpoint: Path
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """The policy's inputs in each episode's first frame, and the episode's task, in the order of `indices`."""
    from factored_scaling.data.lerobot.pictures import read_episodes, read_pictures
    from factored_scaling.data.lerobot.rows import vectors

    wanted = list(json.loads((checkpoint / "config.json").read_bytes())["input_features"])
    missing = [name for name in wanted if name not in dataset.features]
    if missing:
        hint = f"it has {', '.join(dataset.features)}"
        raise InvalidInput(f"has no {missing[0]}, which the policy looks at", where=str(dataset.root), hint=hint)
    cameras = [name for name in wanted if dataset.features[name].is_camera]
    numbers = [name for name in wanted if name not in cameras]
    found: dict[int, dict[str, NDArray[Any]]] = {}
    tasks: dict[int, str] = {}
    for entry, table in read_episodes(dataset, indices, numbers, cameras):
        pictures = {name: next(read_pictures(dataset, entry, table, name, [0])) for name in cameras}
        where = f"{dataset.root}: episode {entry.index}"
        rows = {name: vectors(table.column(name), entry.length, f"{where}, {name}")[0] for name in numbers}
        found[entry.index] = {**pictures, **{name: row.astype(np.float32) for name, row in rows.items()}}
        tasks[entry.index] = entry.tasks[0] if entry.tasks else ""
    return {name: np.stack([found[i][name] for i in indices]) for name in wanted}, [tasks[i] for i in indices]
