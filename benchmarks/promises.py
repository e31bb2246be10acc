"""Predictions of the response model and of the paper's curves for collected allocations, against measured success.

python benchmarks/promises.py --save      writes results/promises.md

Reads the rows under results/: for every seed the model is fitted to the policies on subsets, and asked about every
allocation for which a policy was trained and measured, whichever rule gave it. A measured score has noise of its own:
the intervals here are for the score of one training run over so many trials.
"""

from __future__ import annotations

import argparse
import datetime
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from factored_scaling.cli.outcomes import OutcomeLine, read_outcomes
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.io.files import read_results, read_study
from factored_scaling.model.estimate import LEVELS, MODEL_ERROR
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.prior import Floats
from factored_scaling.model.recommend import CurveReport, recommend

HOME = Path(__file__).resolve().parent.parent
STUDIES = {
    "tabletop, pick-place": "results/tabletop-pick-place/quickstart",
    "pull-visual, 2,500 updates": "results/maniskill-pull-visual/resnet18-96px",
    "pull-visual, 6,000 updates": "results/maniskill-pull-visual/resnet18-96px-6000",
    "ManiSkill, pick-place": "results/maniskill-pick-place/resnet18-96px",
    "pull-visual, 10 per factor": "results/main/pull-visual",
    "pull-spatial, 5 per factor": "results/main/pull-spatial",
}
ADDED = ((0, 0), (1, 19), (20, 49), (50, 200))  # demonstrations of a factor that an allocation added


@dataclass(frozen=True)
class Promise:
    """One allocation: success by the response model, by the curves and measured, and whether each interval held it."""

    rule: str
    modelled: float
    curves: float
    measured: float
    held: tuple[bool, ...]
    added: Floats  # N, as are the next two: gains on each factor's own trials
    expected_gains: Floats
    measured_gains: Floats


def promises(folder: Path) -> Iterator[Promise]:
    spec = read_study(folder / "study.yaml")
    every, outcomes = read_results(folder / "results.csv", spec), read_outcomes(folder / "outcomes.csv")
    for seed in sorted({line.seed for line in outcomes}):
        seen = Results(tuple(row for row in every.rows if row.seed == seed))
        posterior = fit_posterior(spec, seen)
        curves = recommend(spec, seen, 100, "all", "power-law").curves
        for line in outcomes:
            if line.seed == seed:
                promised = predicted_score(spec, curves, line.allocation)
                assert promised is not None
                yield _promise(posterior, line, promised)


def predicted_score(spec: StudySpec, reports: Sequence[CurveReport], allocation: Mapping[str, int]) -> float | None:
    """What the curves together say of an allocation: the score now plus every curve's own gain.

    Exact for an allocation to one combination, where it is that curve's prediction. Otherwise the gains are added,
    which the method does not claim and data of one factor that help another can break; None where curves overlap.
    """
    if not reports or spec.construction == "pair":
        return None
    spent = [sum(allocation[name] for name in report.curve.combination.factors) for report in reports]
    total = sum(spent)
    if total == 0:
        return None
    now = sum(count * report.now for count, report in zip(spent, reports, strict=True)) / total
    sizes = [report.curve.combination.size for report in reports]
    gain = sum(r.curve.at(size + count) - r.now for r, size, count in zip(reports, sizes, spent, strict=True))
    return min(1.0, max(0.0, now + gain))


def _promise(posterior: Posterior, line: OutcomeLine, by_curves: float) -> Promise:
    names = posterior.spec.names
    added = np.array([float(line.allocation[name]) for name in names])
    before, after = posterior.by_factor(np.stack([posterior.now, posterior.now + added]))
    measured = np.array([line.by_factor[name] for name in names])
    shown = _shown(posterior, before.mean(0), after, line.trials)
    edges = [np.quantile(shown, [(1 - level) / 2, (1 + level) / 2]) for level in LEVELS]
    held = tuple(bool(low - 1e-9 <= line.score <= high + 1e-9) for low, high in edges)
    now = before.mean(-1)
    return Promise(
        line.method, float(after.mean()), by_curves, line.score, held, added, after.mean(-1) - now, measured - now
    )


def _shown(posterior: Posterior, before: Floats, after: Floats, trials: int) -> Floats:
    """Scores that a policy trained on the allocation may show: with the model's error, training noise and trials."""
    rng = np.random.default_rng(0)
    count, draws = after.shape
    slope = 2 * np.sqrt(after * (1 - after))  # from arcsin √p to p
    error = MODEL_ERROR * float((after.mean(0) - before).mean()) * rng.standard_normal(draws)
    common = posterior.noise_common * rng.standard_normal(draws)
    own = posterior.noise_own * rng.standard_normal((count, draws))
    success = np.clip(after + error + slope * (common + own), 0.0, 1.0)
    return np.asarray(rng.binomial(trials // count, success).sum(0) / (trials // count * count))


def tables(found: dict[str, list[Promise]]) -> list[str]:
    lines = [
        "| study | allocations | response model: predicted − measured | root mean square | 50% | 80% | 95% "
        "| curves: predicted − measured | root mean square |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    everything = [promise for several in found.values() for promise in several]
    for name, several in [*found.items(), ("all", everything)]:
        held = np.mean([promise.held for promise in several], axis=0)
        shares = " | ".join(f"{100 * share:.0f}%" for share in held)
        by_model, by_curves = (
            np.array([getattr(promise, who) - promise.measured for promise in several])
            for who in ("modelled", "curves")
        )
        off, off_curves = (f"{100 * e.mean():+.1f} | {100 * (e**2).mean() ** 0.5:.1f}" for e in (by_model, by_curves))
        lines.append(f"| {name} | {len(several)} | {off} | {shares} | {off_curves} |")
    lines += [
        "",
        "| demonstrations added | cells | predicted gain on their factor's trials | measured |",
        "|---|---:|---:|---:|",
    ]
    added, expected, measured = (
        np.concatenate([getattr(promise, what) for promise in everything])
        for what in ("added", "expected_gains", "measured_gains")
    )
    for low, high in ADDED:
        chosen = (added >= low) & (added <= high)
        label = "none" if high == 0 else f"{low} to {high}"
        gains = f"{100 * expected[chosen].mean():+.1f} | {100 * measured[chosen].mean():+.1f}"
        lines.append(f"| {label} | {chosen.sum()} | {gains} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/promises.md")
    given = parser.parse_args()
    lines = [
        "# Predictions for collected allocations",
        "",
        f"{datetime.date.today().isoformat()}, Python {platform.python_version()}, numpy {np.__version__}; "
        "`python benchmarks/promises.py --save`. "
        "Rows and how they were made: [results](../../results/README.md). In points of success.",
        "",
        *tables({name: list(promises(HOME / place)) for name, place in STUDIES.items()}),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if given.save:
        (HOME / "benchmarks/results/promises.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
