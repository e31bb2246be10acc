"""Study: plan, ask, tell, fit, recommend and extend, on top of a database."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factored_scaling.core.checks import expect, shown, whole
from factored_scaling.core.curves import Curve
from factored_scaling.core.dataset import Dataset, Episode, check_counts, numbered_episodes
from factored_scaling.core.design import PlannedRun, plan, run_on, run_spec
from factored_scaling.core.results import Results, Row, resolve
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import FscError, InvalidInput, StudyExists, StudyMissing
from factored_scaling.model.hindsight import Hindsight
from factored_scaling.model.posterior import Posterior
from factored_scaling.model.recommend import Recommendation, recommend
from factored_scaling.runner.outcomes import Outcome, check_factors
from factored_scaling.runner.queue import Run, RunQueue
from factored_scaling.store import RoundRow, RunRow, Store, WholeRun
from factored_scaling.store.documents import PLAN, RECOMMENDATION, REMIX
from factored_scaling.study.arguments import as_mapping, check_address, check_training_set, episodes_of
from factored_scaling.study.display import describe, differences, study_html, to_frame
from factored_scaling.study.observations import known_already, matched, measured
from factored_scaling.study.proxy import proxy_results
from factored_scaling.study.snapshot import Record, Snapshot

if TYPE_CHECKING:  # opening a study loads no backend
    import pandas
    from matplotlib.axes import Axes

    from factored_scaling.backends import Backend
    from factored_scaling.runner.events import Event
    from factored_scaling.runner.run import RunSummary

log = logging.getLogger("factored_scaling.study")


class Study(RunQueue):
    """One study in a store: its plan, runs and results, and the recommendations that follow from them."""

    def __init__(self, store: Store, id_: int, settings: StudySpec | None = None) -> None:
        super().__init__(store, id_)
        self._settings = settings

    @classmethod
    def create(
        cls, spec: StudySpec, address: str | Path, dataset: Dataset | None = None, planned: bool = True
    ) -> Study:
        """Start a study at a database URL or an SQLite path, and plan its first round unless not `planned`.

        Killed at any instant, this leaves no study or a complete one. StudyExists when the name is taken.
        """
        expect(spec, StudySpec, "spec")
        if dataset is not None:
            expect(dataset, Dataset, "dataset")
        check_address(address)
        data = dataset if dataset is not None else Dataset.of_sizes(spec.sizes, spec.nominal)
        check_counts(spec, data)
        runs = plan(spec, data) if planned else ()
        store, made = Store.create(address, lambda store: store.create_study(spec.name, spec, data, runs))
        return cls(store, made, spec)

    @classmethod
    def open(cls, address: str | Path, name: str | None = None, settings: StudySpec | None = None) -> Study:
        """Open a study. `settings`, usually a study.yaml, may change how curves are built, not what was collected."""
        if settings is not None:
            expect(settings, StudySpec, "settings")
        check_address(address)
        store = Store.open(address, create=False)
        try:
            rows = store.studies()
            if name is None and len(rows) == 1:
                row = rows[0]
            elif name is None and not rows:
                hint = "if its creation was interrupted, remove it and create the study again"
                raise StudyMissing("the database holds no study", where=store.place, hint=hint)
            elif name is None:
                hint = f"name one of {', '.join(row.name for row in rows)}; on the command line write #NAME after it"
                raise StudyMissing(f"the database holds {len(rows)} studies", where=store.place, hint=hint)
            else:
                row = store.study(name)
            study = cls(store, row.id, settings)
            if settings is not None:
                study._check_settings(settings)
        except BaseException:
            store.close()
            raise
        return study

    @classmethod
    def load_or_create(cls, spec: StudySpec, address: str | Path, dataset: Dataset | None = None) -> Study:
        """Open the study called `spec.name` at `address`, or create it where there is none.

        A script that runs again continues. InvalidInput where the study began with another spec or dataset.
        """
        expect(spec, StudySpec, "spec")
        try:
            study = cls.open(address, spec.name)
        except StudyMissing:
            try:
                return cls.create(spec, address, dataset)
            except StudyExists:  # another process created it at the same moment
                study = cls.open(address, spec.name)
        first = study.store.rounds(study.id)[0]
        changes = differences(first.spec, spec)
        if dataset is not None and dataset != first.dataset:
            changes.append("dataset: other episodes there")
        if changes:
            study.close()
            hint = (
                "give the new one another `name` and folder; Study.open(…, settings=spec) changes how curves are built"
            )
            what = f"study {spec.name!r} began with another spec ({', '.join(changes)})"
            raise InvalidInput(what, where=study.store.place, hint=hint)
        log.info("continuing study %r in %s", spec.name, study.store.place)
        return study

    def __repr__(self) -> str:
        try:
            return f"<Study {describe(self)}>"
        except FscError:  # closed, or the database cannot be reached
            return f"<Study {self.id} in {self.store.place}, not readable>"

    def _repr_html_(self) -> str:
        return study_html(self)

    @property
    def round(self) -> RoundRow:
        """The current round."""
        return self.store.rounds(self.id)[-1]

    @property
    def spec(self) -> StudySpec:
        """The study as it stands now: the demonstrations collected so far, curves built as the settings say."""
        return self._spec_in(self.round)

    def _spec_in(self, round_: RoundRow) -> StudySpec:
        current = round_.spec
        if self._settings is None:
            return current
        now = {factor.name: factor.demos for factor in current.factors}
        added = {factor.name: now[factor.name] - factor.demos for factor in self._settings.factors}
        return self._settings.with_demos(added, current.nominal - self._settings.nominal)

    @property
    def dataset(self) -> Dataset:
        """All demonstrations collected so far."""
        return self.round.dataset

    def plan(self) -> tuple[PlannedRun, ...]:
        """Plan the current round: every distinct policy. New ones become pending runs."""
        planned = plan(self.spec, self.dataset)
        self.store.add_runs(self.id, self.round.index, planned)
        return planned

    def replan(self) -> list[int]:
        """Plan again after the settings have changed, and remove runs that only an earlier plan of this round had.

        Runs that are in progress, trained or measured stay, and so do runs from `add`. Returns the ids of the removed
        runs.
        """
        round_ = self.round
        number, before = round_.index, self.store.document(self.id, PLAN, str(round_.index))
        if before is None and self._spec_in(round_) == round_.spec and self.store.digests(self.id, number):
            return []  # as the round began
        wanted = {run.spec.digest for run in self.plan()}
        other = self.store.digests(self.id, number) - wanted
        if before is None and not other:
            return []
        known = before["runs"] if before is not None else [run.spec.digest for run in plan(round_.spec, round_.dataset)]
        if not wanted <= set(known):
            self.store.put_document(self.id, PLAN, str(number), {"runs": sorted({*known, *wanted})})
        stale = other & set(known)
        return self.store.withdraw_runs(self.id, number, stale) if stale else []

    def add(self, demos: Mapping[str, int], seed: int = 0) -> int:
        """Add one run outside the plan (a training set of your own choosing); returns its id."""
        spec = self.spec
        if not isinstance(demos, Mapping):
            raise InvalidInput(f"expected demos per factor, not {shown(demos)}", where="demos")
        given = {name: whole(count, f"demos:{name}") for name, count in demos.items()}
        resolve(spec, Row(score=0.0, demos=given))  # names and numbers are checked as a result's would be
        counts = {name: given[name] for name in spec.names}
        run = run_spec(spec, self.dataset, counts, seed)
        return self.store.add_runs(self.id, self.round.index, [PlannedRun(run, counts, ())])[0]

    def add_training_set(self, episodes: Sequence[str], seed: int = 0) -> int:
        """Add one run on exactly these episodes; returns its id."""
        spec, home = self.spec, {episode.id: episode.factor for episode in self.dataset.episodes}
        check_training_set(episodes, home)
        counts = {name: sum(home[id_] == name for id_ in episodes) for name in spec.names}
        run = run_on(spec, episodes, seed)
        return self.store.add_runs(self.id, self.round.index, [PlannedRun(run, counts, ())])[0]

    def run(
        self,
        function: Callable[[Run], Outcome] | None = None,
        *,
        backend: Backend | str | Mapping[str, Any] | None = None,
        executor: str | None = None,
        workers: int | None = None,
        device: str | None = None,
        together: int | None = None,
        attempts: int = 2,
        lease_seconds: float = 60.0,
        retry_failed: bool = False,
        folder: str | Path | None = None,
        detach: bool = False,
        on_event: Callable[[Event], None] | None = None,
        **resources: Any,
    ) -> RunSummary:
        """Train and measure every pending run. Called again, it continues where it stopped.

        Parameters
        ----------
        function
            Trains and measures one run and returns what `tell` takes. With several workers it runs in threads.
        backend
            Instead of a function: an object with `train` and `evaluate`, a registered name, `package.module:Class`, or
            a mapping with `kind` and its settings. By default what study.yaml names.
        executor
            Where workers run, by registered name or `package.module:Class`; `resources` are passed to it. By default
            what study.yaml names, else `local`.
        workers
            Number of parallel workers; by default study.yaml or the executor decides.
        device
            `cpu`, `cuda`, `cuda:1`, …: where networks are trained.
        together
            How many runs a worker takes as one job, where the backend supports it.
        attempts
            Attempts before a run counts as failed.
        lease_seconds
            Seconds without a heartbeat after which a worker counts as dead.
        retry_failed
            Also retry runs that failed before.
        folder
            Where checkpoints and logs are kept; by default the folder of the database file, else the current one.
            On a cluster it lies on a file system that all machines share.
        detach
            Return as soon as the workers are started; only on clusters.
        on_event
            Called with `Started`, `RunProgress`, `RunEnded`, `Warned` and `Finished` events, in this thread.

        Raises
        ------
        RunFailed
            When runs have failed; the others are done.
        KeyboardInterrupt
            When stopped by Ctrl-C. Recorded trials are kept; workers on a cluster keep running.
        """
        from factored_scaling.runner.function import FunctionBackend
        from factored_scaling.runner.run import run_study

        if function is not None:
            if backend is not None:
                raise InvalidInput("a function is a backend of its own; give one of the two", where="backend")
            if not callable(function) or isinstance(function, type):
                hint = "pass a backend as run(backend=…)"
                raise InvalidInput(f"expected a function of a run, not {shown(function)}", where="function", hint=hint)
            backend = FunctionBackend(function, self.spec)
        file = self.store.file
        home = Path(folder) if folder is not None else file.parent if file is not None else Path.cwd()
        summary = run_study(
            self,
            home.resolve(),
            backend=backend,
            executor=executor,
            workers=workers,
            device=device,
            together=together,
            attempts=attempts,
            lease_seconds=lease_seconds,
            retry_failed=retry_failed,
            detach=detach,
            on_event=on_event,
            **resources,
        )
        if summary.stopped and self.stop_requested() is None:
            raise KeyboardInterrupt
        summary.raise_for_failures()
        return summary

    def stop(self, now: bool = False, cancel: bool = False) -> list[str]:
        """Ask all workers of the study to stop: after their current runs, or with `now` at the next safe point.

        With `cancel` they stop now, and the jobs that were submitted to schedulers are cancelled; returns these jobs.
        `run` starts workers again.
        """
        self.request_stop("now" if now or cancel else "drain")
        if not cancel:
            return []
        from factored_scaling.runner.executors import cancel_jobs

        return cancel_jobs(self)

    def find_run(self, reference: int | str) -> WholeRun:
        """One run by its id, or by its digest or the beginning of it."""
        text = str(reference)
        found = self.store.find_runs(self.id, text)
        if len(found) != 1:
            what = "no run" if not found else "more than one run"
            raise StudyMissing(f"{what} {text!r}", hint="`fsc runs STUDY` lists ids and digests")
        return self.store.run(found[0])

    def import_results(self, results: Results, source: str) -> int:
        """Import measured means. Each row goes to the run with its training set and seed, which is then done.

        Rows without a seed belong to seed 0. A score that is listed under several curves (as the full-data policy often
        is) counts once, and so does one that is stored already, as a score or as trials with that mean. An error
        imports nothing. Returns the number of new scores. A row that equals a score from another source is logged.
        """
        new, known = self.take_in(results, source)
        if known:
            log.warning(known_already(known))
        return new

    def take_in(self, results: Results, source: str) -> tuple[int, list[str]]:
        """`import_results`, and the places of rows that equal a score from another source and were not added."""
        expect(results, Results, "results")
        round_ = self.round
        measurements, known = measured(self._spec_in(round_), round_.dataset, results, source), list[str]()
        match = partial(matched, measurements, known)
        return self.store.import_means(self.id, round_.index, match), known

    def snapshot(self, partial: bool = False, proxy: int | None = None) -> Snapshot:
        """The study at this moment, read in one transaction; recommendations and reports are computed from it.

        Scores of runs that are not finished are left out unless `partial`. With `proxy`, the snapshot also holds
        FSC-Proxy's scores of the `proxy` (1, 5, 10) nearest.
        """
        with self.store.one_moment():
            record = Record.read(self.store, self.id)
            weights = self.remix_weights()
            offline = None if proxy is None else proxy_results(self, proxy)
        rows = tuple(row for _, rows in record.rows(partial) for row in rows)
        last = record.rounds[-1]
        return Snapshot(self._spec_in(last), Results(rows), weights, offline, last.dataset, record)

    def results(self, partial: bool = False) -> Results:
        """All scores so far, as rows; runs that are not finished are left out unless `partial`."""
        return self.snapshot(partial).results

    def hindsight(self) -> Hindsight | None:
        """The last round as predicted from earlier scores, and its outcome; None while either is unknown."""
        return self.snapshot().hindsight

    def unfinished(self) -> list[RunRow]:
        """Runs that have some scores but are not finished."""
        return Record.read(self.store, self.id).unfinished

    def fit(self) -> tuple[Curve, ...]:
        """Fit the paper's power-law curve of every combination."""
        return self.snapshot().curves.curves

    def recommend(self, budget: int, strategy: str = "auto", fit: str | None = None, **options: Any) -> Recommendation:
        """Recommend how many demonstrations of each factor to collect next; options are those of `recommend`."""
        now = self.snapshot()
        return recommend(now.spec, now.results, budget, strategy, fit, **options)

    def posterior(self, seed: int = 0) -> Posterior:
        """Fit the response model to the study's results. The same seed gives the same samples."""
        return self.snapshot().posterior(seed)

    def to_frame(self) -> pandas.DataFrame:
        """Every run with its scores as a pandas data frame: one row per run and factor that was varied in its trials.

        Columns: `run`, `round`, `state`, `seed`, `demos:NAME` per factor, `factor` (as in results.csv), `score`,
        `trials` and the ends `low` and `high` of the 95% interval. Runs without scores have one row.
        """
        return to_frame(self.spec.names, Record.read(self.store, self.id).rows(partial=True))

    def plot_curves(self, budget: int = 100) -> list[Axes]:
        """Draw every fitted curve with its points and 95% band up to `budget` more demonstrations; one Axes each."""
        from factored_scaling.report.notebook import plot_curves

        return plot_curves(self.spec, self.recommend(budget, "all"))

    def report(self, path: str | Path, budget: int = 100, strategy: str = "auto") -> Path:
        """Write the page of `fsc report`, one HTML file, for `budget` demonstrations; returns its path."""
        from factored_scaling.report import write_report

        created = datetime.date.today().isoformat()
        return write_report(self.snapshot().report(budget, strategy, created=created), path)

    def remix_weights(self) -> dict[str, float] | None:
        """Re-Mix's weight of each factor; None where they were not learned."""
        found = self.store.document(self.id, REMIX, "weights")
        return None if found is None else dict(found["weights"])

    def save_remix_weights(self, weights: Mapping[str, float], domains: Sequence[str]) -> None:
        """Store the weights that Re-Mix learned over its domains."""
        self.store.put_document(self.id, REMIX, "weights", {"weights": dict(weights), "domains": list(domains)})

    def save_recommendation(self, recommendation: Recommendation | Mapping[str, Any]) -> None:
        """Store a recommendation, or its `to_mapping()`, as the one of this round."""
        self.store.put_document(self.id, RECOMMENDATION, "latest", as_mapping(recommendation))

    def saved_recommendation(self) -> dict[str, Any] | None:
        """The recommendation that was last saved in this round, as a mapping; None where there is none."""
        found = self.store.documents(self.id, RECOMMENDATION)
        latest = [row for row in found if row.key == "latest" and row.created >= self.round.created]
        return dict(latest[0].body) if latest else None

    def extend(
        self,
        collected: Mapping[str, int] | Iterable[Episode],
        recommendation: Recommendation | Mapping[str, Any] | None = None,
        planned: bool = True,
    ) -> RoundRow:
        """Start the next round with the demonstrations collected since: counts per factor, or the episodes themselves.

        `recommendation`, or its `to_mapping()`, is the one that was followed; it is stored with the round. Counts under
        "nominal" are demos that vary nothing. The new round's policies become pending runs unless not `planned`.
        """
        followed = None if recommendation is None else as_mapping(recommendation)
        current, spec = self.round, self.spec
        if isinstance(collected, Mapping):
            episodes = numbered_episodes(collected, current.dataset, spec)
        else:
            episodes = episodes_of(collected)
        if not episodes:
            raise InvalidInput("no new demonstrations", hint="say how many of each factor were collected")
        for episode in episodes:
            check_factors((episode.factor,) if episode.factor is not None else (), spec)
        added = {name: sum(episode.factor == name for episode in episodes) for name in spec.names}
        nominal = sum(episode.factor is None for episode in episodes)
        grown = spec.with_demos(added, nominal)
        # an explicit index: where another process added a round in between, this fails and loses nothing
        data = current.dataset.extended(episodes)
        runs = plan(grown, data) if planned else ()
        self.store.add_round(self.id, grown, data, followed, index=current.index + 1, planned=runs)
        return self.round

    def _check_settings(self, settings: StudySpec) -> None:
        first = self.store.rounds(self.id)[0].spec
        if settings.sizes != first.sizes or settings.nominal != first.nominal:
            begun = any(run.trials or run.scores for run in self.runs())
            hint = "demos collected since belong in `fsc extend`; for other factors start a new study"
            if not begun:
                hint = f"nothing is recorded yet: remove {self.store.place} to start again with the new factors"
            raise InvalidInput(
                "factors or demo counts differ from those the study began with", where="study.yaml", hint=hint
            )
