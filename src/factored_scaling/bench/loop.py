"""The whole loop in a simulator: collect, train subsets, fit, recommend, collect what was recommended, measure again.

The quickstart and the reproduction of the paper's tables are `Loop`s with different cells. A cell is one way to spend
one budget. The loop's folder holds `study.db` with the runs on subsets and `outcomes.db` with the policies trained
after collecting. A stopped loop can be resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factored_scaling.backends.simulation import DATASET_STRIDE, NOMINAL, Lab, evaluation_sizes, policy_config
from factored_scaling.core.baselines import BASELINES
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Result, result_of_tallies
from factored_scaling.errors import InvalidInput
from factored_scaling.io.files import write_study
from factored_scaling.machine import prepare_device
from factored_scaling.model.recommend import Recommendation, recommend
from factored_scaling.model.summary import compare
from factored_scaling.progress import Progress
from factored_scaling.runner.events import Event
from factored_scaling.runner.run import run_study
from factored_scaling.study import Study


@dataclass(frozen=True)
class LoopSettings:
    """One replicate of the whole procedure."""

    task: str
    # demonstrations at the start: of every factor, or by factor and under "nominal" those that vary none
    demos: int | Mapping[str, int] = 30
    # curve points per combination
    points: int = 4
    # seed of the demonstrations and of training
    seed: int = 0
    policy: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    remix: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def start(self, factors: Sequence[str]) -> dict[str, int]:
        """Initial demonstrations of each factor, and nominal ones if there are any."""
        if isinstance(self.demos, int):
            return dict.fromkeys(factors, self.demos)
        if set(self.demos) - {NOMINAL} != set(factors):
            raise InvalidInput(f"must give a number for each of {', '.join(factors)}", where="demos")
        return {name: self.demos[name] for name in (*factors, NOMINAL) if name in self.demos}


@dataclass(frozen=True, slots=True)
class Cell:
    """One way to spend one budget. `proxy` is the k of FSC-Proxy; None means measured scores."""

    strategy: str
    budget: int
    construction: str = "group"
    proxy: int | None = None

    @property
    def label(self) -> str:
        """A short name, unique among the cells of one budget."""
        if self.strategy in BASELINES:
            return self.strategy
        source = f"proxy k={self.proxy}, " if self.proxy is not None else ""
        # The response model uses all measurements; the construction only names the curves that they were made for.
        return f"{source}response model" if self.strategy == "auto" else f"{source}{self.construction}, {self.strategy}"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a cell: its allocation, its success predicted by the response model, and the measured one."""

    cell: Cell
    recommendation: Recommendation
    predicted: float | None
    result: Result


class Stop(Exception):
    """The user stopped the work; all results so far are stored."""


class Loop:
    """One replicate in one folder. `workers` and `on_event` are those of `run_study`."""

    def __init__(
        self,
        folder: Path,
        settings: LoopSettings,
        progress: Progress,
        workers: int | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self._progress = progress
        self._workers = workers
        self._on_event = on_event
        policy_config(settings.policy)  # errors in the settings are raised before anything is collected
        self.lab = Lab(settings.task, folder, settings.device, settings.policy.get("image_size"))
        self.start = settings.start(self.lab.task.factors)
        prepare_device(settings.device)  # demonstrations are generated here
        evaluation_sizes(settings.evaluation, self.lab.task.settings_per_factor)

    def study(self, construction: str = "group") -> Study:
        """The study on the first demonstrations, which are collected if it does not exist yet."""
        spec = self._spec(construction)
        path = self.folder / "study.db"
        if path.exists():
            study = Study.open(path, settings=spec)
            known = study.store.rounds(study.id)[0].spec
            if (known.task, known.policy, known.evaluation) != (spec.task, spec.policy, spec.evaluation):
                study.close()
                hint = "give another folder, or the settings it was made with"
                raise InvalidInput("holds a study with other settings", where=str(self.folder), hint=hint)
            return study
        episodes = self.lab.collect(self.start, self._first_episode, self._progress)
        write_study(spec, self.folder / "study.yaml")
        return Study.create(spec, path, Dataset(tuple(episodes)))

    def measure(self, constructions: Sequence[str]) -> None:
        """Train and measure every policy that the curves of these constructions need."""
        for construction in constructions:
            with self.study(construction) as study:
                study.plan()
        with self.study() as study:
            self._work(study)

    def recommend(self, cell: Cell) -> tuple[Recommendation, StudySpec, Results]:
        """The cell's allocation, from measured or proxy scores."""
        with self.study(cell.construction) as study:
            weights = self._remix_weights(study) if cell.strategy == "remix" else None
            now = study.snapshot(proxy=cell.proxy)
        results = now.results if now.proxy is None else now.proxy
        return recommend(now.spec, results, cell.budget, cell.strategy, weights=weights), now.spec, results

    def outcomes(self, cells: Sequence[Cell]) -> list[Outcome]:
        """Collect every cell's allocation, train on it, measure. Cells with the same allocation share a policy."""
        answers = [self.recommend(cell) for cell in cells]
        with self.study() as study:
            now = study.snapshot()
            first, spec = study.dataset, now.spec
        most = {name: max(answer.allocation[name] for answer, _, _ in answers) for name in spec.names}
        start = self._first_episode + max(self.start.values())
        new = self.lab.collect(most, start, self._progress)
        pool = first.extended(new)
        with self._outcome_study(spec, pool, most) as after:
            runs = {}
            for cell, (answer, _, _) in zip(cells, answers, strict=True):
                chosen = [episode.id for episode in first.episodes]
                for name, count in answer.allocation.items():
                    chosen += [f"{name}/{start + index}" for index in range(count)]
                runs[cell] = after.add_training_set(chosen, self.settings.seed)
            self._work(after)
            tallies = after.store.tallies(after.id, list(runs.values()))
            results = {cell: result_of_tallies(tallies.get(run, [])) for cell, run in runs.items()}
        return [
            Outcome(
                cell, answer, compare(now.posterior(), cell.budget, answer.allocation).predicted.mean, results[cell]
            )
            for cell, (answer, _, _) in zip(cells, answers, strict=True)
        ]

    def before(self) -> Result:
        """Measured success of the policy that is trained on all first demonstrations."""
        with self.study() as study:
            [run] = [run.id for run in study.runs() if run.demos == study.spec.sizes]
            return result_of_tallies(study.store.tallies(study.id, [run])[run])

    @property
    def _first_episode(self) -> int:
        return self.settings.seed * DATASET_STRIDE

    def _spec(self, construction: str) -> StudySpec:
        settings = self.settings
        return StudySpec(
            factors={name: count for name, count in self.start.items() if name != NOMINAL},
            nominal=self.start.get(NOMINAL, 0),
            construction=construction,
            points=settings.points,
            first_seed=settings.seed,
            name=f"{settings.task} seed {settings.seed}",
            task=settings.task,
            policy=settings.policy,
            evaluation=settings.evaluation,
        )

    def _outcome_study(self, spec: StudySpec, pool: Dataset, most: Mapping[str, int]) -> Study:
        """The study of outcome policies. Its dataset grows if later cells need more demonstrations."""
        path = self.folder / "outcomes.db"
        wanted = spec.with_demos(most)
        if not path.exists():
            return Study.create(wanted, path, pool, planned=False)
        study = Study.open(path)
        known = {episode.id for episode in study.dataset.episodes}
        missing = [episode for episode in pool.episodes if episode.id not in known]
        if missing:
            study.extend(missing, planned=False)
        return study

    def _work(self, study: Study) -> None:
        device = self.settings.device
        summary = run_study(study, self.folder, workers=self._workers, device=device, on_event=self._on_event)
        if summary.stopped:
            raise Stop
        summary.raise_for_failures()

    def _remix_weights(self, study: Study) -> dict[str, float]:
        """Re-Mix's weights, learned on first use."""
        weights = study.remix_weights()
        if weights is None:
            from factored_scaling.policies.remix import plot_trajectory

            ids = [episode.id for episode in study.dataset.episodes]
            seed, folder = self.settings.seed, self.folder / "remix"
            learned = self.lab.remix(ids, self.settings.remix, seed, folder, self._progress)
            weights = dict(learned.weights)
            plot_trajectory(learned, folder / "weights.png")
            study.save_remix_weights(weights, learned.domains)
        return weights
