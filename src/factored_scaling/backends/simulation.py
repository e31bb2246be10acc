"""The simulation backend: collects demonstrations in a simulator, trains, evaluates and embeds our own policy.

An episode's id determines it: `camera_pose/17` is the demonstration of camera_pose with random seed 17, the same
on every machine. So frames are a cache that can be deleted, and studies store only ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factored_scaling.backends.protocol import Backend, Context, Embeddings
from factored_scaling.core.dataset import Episode
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Trial
from factored_scaling.data.frames import FrameTable
from factored_scaling.data.shelf import FrameShelf
from factored_scaling.errors import InvalidInput, UnknownFactor
from factored_scaling.policies.config import DiffusionConfig, RemixConfig
from factored_scaling.progress import DEMONSTRATING, Progress
from factored_scaling.sim import Condition, DemoRequest, load_task

if TYPE_CHECKING:
    import torch

    from factored_scaling.backends import BackendRequest
    from factored_scaling.policies.remix import RemixResult

    def _satisfies(lab: Lab) -> Backend:
        """Lets the type checker verify that a lab is a backend."""
        return lab


CHUNK = 256  # trials rolled out together; fixed, so that a resumed evaluation has the same batches
REPORT_EVERY = 16  # trials between two reports of progress
DEMOS_AT_ONCE = 16, 64  # demonstrations between two reports of progress: minimum, maximum
DEMO_BYTES = 1 << 30  # of images that are rendered before they are written
DATASET_STRIDE = 100_000  # dataset seed s numbers its episodes from s times this
NOMINAL = "nominal"


class Lab:
    """The simulation backend: one task of a simulator. `folder` holds frames and trained policies."""

    in_process = True
    one_core = True

    def __init__(self, task: str, folder: Path, device: str = "cpu", image_size: int | None = None) -> None:
        self.task = load_task(task, image_size)
        self.folder = folder
        self.device = device
        self._shelf = FrameShelf(folder / "demos" / f"{self.task.name.replace('/', '-')}-{self.task.image_size}")
        self._held_out: tuple[list[Condition], torch.Tensor] | None = None  # with their first frames

    @classmethod
    def from_request(cls, request: BackendRequest) -> Lab:
        """The lab of a study's task and image size."""
        if request.task is None:
            hint = "measure it yourself and `fsc record`"
            raise InvalidInput("this study names no simulator task", where="task", hint=hint)
        lab = cls(request.task, request.folder, request.device or "cpu", request.policy.get("image_size"))
        for name in request.factors:
            if name not in lab.task.factors:
                raise UnknownFactor(name, lab.task.factors, where=f"task {request.task}")
        try:
            policy_config(request.policy)
        except InvalidInput as error:
            raise error.at("policy") from None
        evaluation_sizes(request.evaluation, lab.task.settings_per_factor)
        return lab

    def collect(self, order: Mapping[str, int], seed: int, progress: Progress) -> Sequence[Episode]:
        """Demonstrate `order[factor]` episodes per factor, numbered from `seed` on, and store their frames."""
        episodes = []
        for factor, count in order.items():
            if factor != NOMINAL and factor not in self.task.factors:
                raise UnknownFactor(factor, self.task.factors)
            varied = None if factor == NOMINAL else factor
            episodes += [Episode(f"{factor}/{seed + index}", varied) for index in range(count)]
        self.demonstrate([episode.id for episode in episodes], progress)
        return episodes

    def frames(self, ids: Sequence[str], progress: Progress) -> FrameTable:
        """The episodes' frames, from the cache or new demonstrations; large ones are mapped from a file."""
        self.demonstrate(ids, progress)
        return self._shelf.select(ids)

    def demonstrate(self, ids: Sequence[str], progress: Progress) -> None:
        """Demonstrate the episodes that are not cached."""
        missing = self._shelf.missing(ids)
        each = self.task.max_steps * self.task.cameras * 3 * self.task.image_size**2
        at_once = min(max(DEMO_BYTES // each, DEMOS_AT_ONCE[0]), DEMOS_AT_ONCE[1])
        for start in range(0, len(missing), at_once):
            progress(start, len(missing), DEMONSTRATING)
            batch = missing[start : start + at_once]
            made = self.task.demonstrate([_request(id_, self.task.factors) for id_ in batch], self.device)
            self._shelf.add(made, hashlib.sha256(repr(batch).encode()).hexdigest()[:16])
        if missing:
            progress(len(missing), len(missing), DEMONSTRATING)

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Train the run's diffusion policy in `folder`, from its last checkpoint."""
        from factored_scaling.policies.diffusion import train_diffusion

        self.demonstrate(run.episodes, progress)
        table, config = self._shelf.holding(run.episodes), policy_config(run.policy)
        train_diffusion(table, config, run.seed, folder, progress, self.device, episodes=run.episodes)

    def train_many(self, runs: Sequence[RunSpec], folders: Sequence[Path], context: Context) -> dict[Path, str]:
        """Train several runs' policies as one job, from their last checkpoints; returns the errors of failed ones.

        On a GPU `context.together` policies are trained together, or as many as its free memory allows.
        """
        from factored_scaling.policies.capacity import train_within
        from factored_scaling.policies.many import Job

        jobs = [
            Job(run.episodes, policy_config(run.policy), run.seed, folder)
            for run, folder in zip(runs, folders, strict=True)
        ]
        episodes = [id_ for run in runs for id_ in run.episodes]
        self.demonstrate(episodes, context)
        return train_within(self._shelf.holding(episodes), jobs, context, self.device, context.together)

    def fingerprint(self, folder: Path) -> str:
        """A digest of the weights of the policy in `folder`."""
        from factored_scaling.policies.checkpoint import read_description

        return str(read_description(folder, "policy")["tensors_digest"])

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial]:
        """Roll the policy out under every held-out condition; chunks whose trials are all done are skipped."""
        for _, trial in self.evaluate_many([run], [folder], [context]):
            yield trial

    def evaluate_many(
        self, runs: Sequence[RunSpec], folders: Sequence[Path], contexts: Sequence[Context]
    ) -> Iterator[tuple[int, Trial]]:
        """Roll several policies out together; yields (index of the run, trial). Scores equal those of single policies.

        The runs must share evaluation and policy settings, as those of one study do. Progress of
        all is reported to the first context.
        """
        from factored_scaling.policies.diffusion import load_policy
        from factored_scaling.policies.inference import Sampler, Team

        if any((run.evaluation, run.policy) != (runs[0].evaluation, runs[0].policy) for run in runs):
            raise InvalidInput("runs with different evaluation or policy settings cannot be rolled out together")
        progress, done = contexts[0], [context.done for context in contexts]
        samplers = [Sampler(load_policy(folder, self.device)) for folder in folders]
        execute = samplers[0].policy.config.execute
        conditions = self.conditions(runs[0].evaluation)
        total = len(conditions) * len(runs)
        for start in range(0, len(conditions), CHUNK):
            chunk = conditions[start : start + CHUNK]
            missing = [one for one in range(len(runs)) if any(condition.key not in done[one] for condition in chunk)]
            behind = start * len(runs) + len(chunk) * (len(runs) - len(missing))
            progress(behind, total, "rolling out")
            seeds = [runs[one].seed * len(conditions) + start for one in missing]
            team = Team([samplers[one] for one in missing], seeds, len(chunk))
            rolled = self.task.rollout_many(team, len(missing), chunk, execute, self.device)
            for count, (row, score) in enumerate(rolled, 1):
                condition = chunk[row % len(chunk)]
                assert condition.factor is not None
                yield (
                    missing[row // len(chunk)],
                    Trial(condition.key, score, (condition.factor,), str(condition.setting)),
                )
                # A stop must not wait for all policies' rollouts.
                if count % REPORT_EVERY == 0:
                    progress(behind + count, total, "rolling out")
        progress(total, total, "rolling out")

    def conditions(self, evaluation: Mapping[str, Any]) -> list[Condition]:
        """Factors × held-out settings × initial states; neighbours differ in factor, so a chunk is a fair sample."""
        settings, states = evaluation_sizes(evaluation, self.task.settings_per_factor)
        factors: Sequence[str] = evaluation.get("factors", self.task.factors)
        for factor in factors:
            if factor not in self.task.factors:
                raise UnknownFactor(factor, self.task.factors, where=self.task.name)
        return [
            Condition(factor, setting, initial)
            for initial in range(states)
            for setting in range(settings)
            for factor in factors
        ]

    def embed(self, run: RunSpec, folder: Path, context: Context) -> Embeddings:
        """The policy's embeddings of the run's first observations and of the held-out ones, by `conditions`."""
        from factored_scaling.policies.diffusion import load_policy

        conditions = self.conditions(run.evaluation)
        if self._held_out is None or self._held_out[0] != conditions:  # the same for all runs
            self._held_out = conditions, self.task.first_frames(conditions, self.device)[0].cpu()
        self.demonstrate(run.episodes, context)
        policy = load_policy(folder, self.device)
        trained = policy.embed(self._shelf.first_images(run.episodes))
        return Embeddings(trained, policy.embed(self._held_out[1]), tuple(condition.factor for condition in conditions))

    def remix(
        self, episodes: Sequence[str], settings: Mapping[str, Any], seed: int, folder: Path, progress: Progress
    ) -> RemixResult:
        """Re-Mix's domain weights for the episodes."""
        from factored_scaling.policies.remix import train_remix

        table = self.frames(episodes, progress)
        return train_remix(table, RemixConfig.from_mapping(settings), seed, folder, progress, self.device)


def policy_config(policy: Mapping[str, Any]) -> DiffusionConfig:
    """The diffusion policy that a study's `policy:` describes; `image_size` comes from the simulator."""
    return DiffusionConfig.from_mapping({key: value for key, value in policy.items() if key != "image_size"})


def evaluation_sizes(evaluation: Mapping[str, Any], most_settings: int) -> tuple[int, int]:
    """Held-out settings per factor and initial states per setting, as a study's `evaluation:` gives them."""
    sizes = {"settings": most_settings, "initial_states": 6}
    for key, value in evaluation.items():
        if key == "factors":
            continue
        if key not in sizes:
            raise InvalidInput(f"unknown key {key!r}", where="evaluation", hint="known: settings, initial_states")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(f"expected a whole number of at least 1, not {value!r}", where=f"evaluation.{key}")
        sizes[key] = value
    if sizes["settings"] > most_settings:
        raise InvalidInput(f"at most {most_settings} held-out settings exist", where="evaluation.settings")
    return sizes["settings"], sizes["initial_states"]


def _request(id_: str, factors: Sequence[str]) -> DemoRequest:
    name, _, number = id_.rpartition("/")
    if not number.isdigit() or (name != NOMINAL and name not in factors):
        raise InvalidInput(f"episode {id_!r} is not one of this simulator's", hint="ids are FACTOR/NUMBER")
    return DemoRequest(id_, None if name == NOMINAL else name, int(number))
