"""Snapshot: a study read at one moment, and everything computed from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.results import Results, Row
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Result, Tally, Trial, known_result, result_of_tallies, tally
from factored_scaling.errors import NotEnoughData
from factored_scaling.model.hindsight import Hindsight, hindsight
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.recommend import (
    RESPONSE_MODEL,
    STRATEGIES,
    FittedCurves,
    Recommendation,
    default_fit,
    recommend,
)

if TYPE_CHECKING:  # scores in a file need no database, recommendations no report
    from factored_scaling.report import OutcomeRow, ReportInput, RunLine
    from factored_scaling.store import Measurement, RoundRow, RunRow, Store


@dataclass(frozen=True)
class Record:
    """What the database holds of a study: its rounds, its runs, and the scores of each run by id."""

    rounds: tuple[RoundRow, ...]
    runs: tuple[RunRow, ...]
    tallies: Mapping[int, list[Tally]]
    means: Mapping[int, list[Measurement]]
    # scores of evaluations that are not closed yet
    unsettled: Mapping[int, list[Trial]]

    @classmethod
    def read(cls, store: Store, study: int) -> Record:
        """Everything in one transaction."""
        with store.one_moment():
            return cls(
                tuple(store.rounds(study)),
                tuple(store.runs(study)),
                store.tallies(study),
                store.study_scores(study),
                store.unsettled_trials(study),
            )

    def rows(self, partial: bool = False) -> Iterator[tuple[RunRow, list[Row]]]:
        """Every finished run with its scores as rows; with `partial` the unfinished ones too."""
        from factored_scaling.study.observations import rows_of

        for run in self.runs:
            if partial or run.state == "done":
                scored = tally(self.unsettled.get(run.id, [])) if partial else []
                yield run, rows_of(run, [*self.tallies.get(run.id, []), *scored], self.means.get(run.id, []))

    @property
    def unfinished(self) -> list[RunRow]:
        """Runs that have some scores but are not finished."""
        return [
            run for run in self.runs if (run.trials or run.scores or run.id in self.unsettled) and run.state != "done"
        ]

    @cached_property
    def scores(self) -> dict[int, Result]:
        """By run id, the result of every run that has any, overall and per factor."""
        found = {}
        for run in self.runs:
            if run.id in self.tallies:
                found[run.id] = result_of_tallies(self.tallies[run.id])
            elif run.id in self.means:
                found[run.id] = known_result((m.factor, m.score, m.trials) for m in self.means[run.id])
        return found


@dataclass(frozen=True)
class Snapshot:
    """A study at one moment. Fits and recommendations are computed on first use and cached.

    `Study.snapshot()` reads one from the database; `Snapshot(spec, results)` makes one from scores in memory.
    """

    spec: StudySpec
    results: Results
    # Re-Mix's weights per factor, where they were learned
    weights: Mapping[str, float] | None = None
    # proxy scores that the response model uses in addition to `results`
    proxy: Results | None = None
    # all demonstrations collected so far; None where there is no database
    dataset: Dataset | None = None
    # None where the scores come from a file
    record: Record | None = None
    _posteriors: dict[int, Posterior] = field(default_factory=dict, init=False, repr=False, compare=False)
    _answers: dict[tuple[int, str, str | None], Recommendation] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The demonstrations collected so far; empty without a database."""
        return () if self.dataset is None else self.dataset.episodes

    @cached_property
    def curves(self) -> FittedCurves:
        """The paper's curves: `.curves`, `.refits`, `.reports(budget)`."""
        return FittedCurves(self.spec, self.results)

    def posterior(self, seed: int = 0) -> Posterior:
        """The response model, fitted to the results. The same seed gives the same samples."""
        if seed not in self._posteriors:
            self._posteriors[seed] = fit_posterior(self.spec, self.results, proxy=self.proxy, seed=seed)
        return self._posteriors[seed]

    def recommend(self, budget: int, strategy: str = "auto", fit: str | None = None) -> Recommendation:
        """How many demonstrations of each factor to collect next; the arguments are those of `recommend`."""
        key = (budget, strategy, fit)
        if key not in self._answers:
            modelled = (fit if fit is not None else default_fit(strategy)) == RESPONSE_MODEL
            self._answers[key] = recommend(
                self.spec,
                self.results,
                budget,
                strategy,
                fit,
                weights=self.weights,
                posterior=self.posterior() if modelled else None,
                curves=self.curves,
            )
        return self._answers[key]

    def recommendations(self, budget: int, headline: str = "auto") -> dict[str, Recommendation]:
        """Recommendations by strategy: the headline, then the others that the scores allow; Equal without scores."""
        answers = {}
        first = headline if self.results.rows else "equal"
        for strategy in dict.fromkeys((first, *STRATEGIES)):
            try:
                answers[strategy] = self.recommend(budget, strategy)
            except NotEnoughData:
                if strategy == headline and self.results.rows:
                    raise
        return answers

    @cached_property
    def hindsight(self) -> Hindsight | None:
        """The last round as predicted from earlier scores, and its outcome; None while either is unknown."""
        if self.record is None or len(self.record.rounds) < 2:
            return None
        earlier: list[Row] = []
        later: list[Row] = []
        before, last = self.record.rounds[-2:]
        for run, rows in self.record.rows():
            (earlier if run.rounds[0] < last.index else later).extend(rows)
        return hindsight(before.spec, Results(tuple(earlier)), self.spec, Results(tuple(later)))

    @cached_property
    def run_lines(self) -> tuple[RunLine, ...]:
        """The report's table of policies: the runs of the record, or the policies of a file."""
        from factored_scaling.report import RunLine, run_lines

        if self.record is None:
            return run_lines(self.spec, self.results)
        lines = []
        for run in self.record.runs:
            line = RunLine(f"{run.id} ({run.digest[:8]})", run.demos, run.seed, run.state)
            result = self.record.scores.get(run.id)
            lines.append(line if result is None else line.with_result(result))
        return tuple(lines)

    def report(
        self, budget: int = 100, strategy: str = "auto", *, created: str, outcome: Sequence[OutcomeRow] = ()
    ) -> ReportInput:
        """Everything on the report's page; `created` is its date."""
        from factored_scaling.report import ReportInput
        from factored_scaling.report.words import spoken

        answers = self.recommendations(budget, strategy)
        last = self.hindsight if self.results.rows else None
        notes = [] if last is None else [spoken(self.spec, f"Looking back: {last.sentence}.")]
        return ReportInput(self.spec, self.results, answers, self.run_lines, created, outcome, notes)
