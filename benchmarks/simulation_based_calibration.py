"""Simulation-based calibration of the sampler: are true values uniform among posterior samples when the prior is true?

    python benchmarks/simulation_based_calibration.py --studies 400 --save

Parameters are drawn from the prior, a screening plan of policies is measured with the noise of the model, and the
posterior is sampled as `fsc recommend` does. The rank of each true quantity among the samples is then uniform if the
sampler is right. A histogram that is high in the middle means intervals that are too wide, high at both ends too
narrow.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

import numpy as np
from scipy.stats import chisquare

from factored_scaling.core.design import plan
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.io.text import write_text
from factored_scaling.machine import processor
from factored_scaling.model.posterior import fit_posterior
from factored_scaling.model.prior import draw_mixture
from factored_scaling.model.response import NOISE_COMMON, NOISE_OWN, Parameters, forward, size_of

FACTORS, DEMOS, BUDGET, BINS = 5, 30, 100, 8
TARGET = Path(__file__).with_name("results") / "simulation_based_calibration.md"
QUANTITIES = (
    "success now",
    "success after an equal split",
    "gain of an equal split",
    "100 of the first factor less that",
)


def ranks(number: int, trials: int, policies: int) -> list[float]:
    """Of every quantity, the share of posterior samples below the truth."""
    rng = np.random.default_rng([number, trials])
    spec = StudySpec({f"f{i}": DEMOS for i in range(FACTORS)}, construction="screen", policies=policies)
    mixture = draw_mixture(rng, 8, FACTORS)[np.array([int(rng.integers(8))])]
    truth = Parameters.of(rng.standard_normal((size_of(FACTORS), 1)), mixture)
    sets = [run.demos for run in plan(spec)]
    demos = np.array([[float(one[name]) for name in spec.names] for one in sets]) / DEMOS
    now = np.ones(FACTORS)
    theta = np.arcsin(np.sqrt(forward(truth, mixture, demos, now).success[:, :, 0]))
    common, own = np.exp(truth.links[NOISE_COMMON, 0]), np.exp(truth.links[NOISE_OWN, 0])
    theta = theta + common * rng.standard_normal((len(sets), 1)) + own * rng.standard_normal(theta.shape)
    scores = rng.binomial(trials, np.sin(np.clip(theta, 0, np.pi / 2)) ** 2) / trials
    rows = [
        {"demos": one, "factor": name, "score": float(score), "trials": trials, "seed": 0}
        for one, found in zip(sets, scores, strict=True)
        for name, score in zip(spec.names, found, strict=True)
    ]
    posterior = fit_posterior(spec, Results.from_rows(rows), seed=number)
    equal, first = now + BUDGET / FACTORS / DEMOS, now + np.eye(FACTORS)[0] * BUDGET / DEMOS
    places = np.stack([now, equal, first])
    true = forward(truth, mixture, places, now).success[:, :, 0].mean(1)
    samples = posterior.score(places * DEMOS)
    pairs = [(true[0], samples[0]), (true[1], samples[1]), (true[1] - true[0], samples[1] - samples[0])]
    pairs.append((true[2] - true[1], samples[2] - samples[1]))
    return [float((values < value).mean()) for value, values in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    command = f"python benchmarks/simulation_based_calibration.py --studies {options.studies} --save"
    bins = " | ".join(str(place + 1) for place in range(BINS))
    page = [
        "# Simulation-based calibration",
        "",
        f"{datetime.date.today().isoformat()}, {processor()}; `{command}`.",
        "",
        f"{options.studies} studies drawn from the prior, N = {FACTORS}, 6 policies of a screening plan. Studies per "
        f"eighth of the ranks; {options.studies / BINS:.0f} are expected. p: chi-square test of uniform ranks.",
        "",
        f"| trials per factor | quantity | {bins} | p | in the 95% interval |",
        "|---:|---|" + "---:|" * (BINS + 2),
    ]
    for trials in (60, 4):
        found = np.array([ranks(number, trials, 6) for number in range(options.studies)])
        for name, values in zip(QUANTITIES, found.T, strict=True):
            counts = np.histogram(values, BINS, (0, 1))[0]
            inside = 100 * np.mean((values > 0.025) & (values < 0.975))
            cells = " | ".join(map(str, counts))
            page.append(f"| {trials} | {name} | {cells} | {chisquare(counts).pvalue:.2g} | {inside:.0f}% |")
    text = "\n".join(page) + "\n"
    print(text)
    if options.save:
        write_text(TARGET, text)


if __name__ == "__main__":
    main()
