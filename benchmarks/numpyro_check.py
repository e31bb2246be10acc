"""The response model's posterior by another sampler and another density: NumPyro's NUTS on JAX.

    make test-numpyro     # .venv-numpyro/bin/python benchmarks/numpyro_check.py --save

The density is written here once more, from the formulas in docs/model.md and over the parameters instead of standard
normal variables: both components of the prior are normal distributions of them. docs/decisions/0014-response-model.md
says what counts as agreement. Every component is sampled on its own, because no sampler crosses between them: their
posterior probabilities come from normal priors in between, by Bennett's ratio.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import multivariate_normal

from factored_scaling.bench.decisions import families
from factored_scaling.bench.measure import REGIMES, results
from factored_scaling.bench.methods import parse_method
from factored_scaling.bench.table_worlds import TableFamily
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.io.text import write_text
from factored_scaling.machine import processor
from factored_scaling.model.likelihood import LogLikelihood
from factored_scaling.model.observations import FEW, observe
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.prior import PRIORS, Prior, draw_mixture
from factored_scaling.model.response import Parameters, size_of

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
try:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.diagnostics import split_gelman_rubin
    from numpyro.infer import MCMC, NUTS
except ImportError:
    sys.exit("this needs NumPyro; `make test-numpyro` installs it into .venv-numpyro")
jax.config.update("jax_enable_x64", True)

Floats = NDArray[np.float64]
TARGET = Path(__file__).with_name("results") / "numpyro.md"
METHOD = parse_method("response-model:auto@screen:6/8")
BUDGET, SEEDS, CHAINS = 100, 16, 4
PATH = (1.0, 0.85, 0.65, 0.45, 0.25, 0.1, 0.0)  # share of the first component in the exponents of the prior
MEAN, RATIO, QUANTILE, CHANCE, RHAT = 0.15, (0.85, 1.15), 0.25, 0.05, 1.02  # what counts as agreement
COMMON = ("common", "common_floor", "total_power", "total_offset", "tilt", "noise_common", "noise_own", "q", "o")


@dataclass(frozen=True)
class Study:
    """Scores of a study, as the density needs them."""

    name: str
    spec: StudySpec
    results: Results

    @cached_property
    def unit(self) -> float:
        return float(np.mean(list(self.spec.sizes.values())))

    @cached_property
    def now(self) -> Floats:
        return np.array(list(self.spec.sizes.values()), dtype=float)

    @cached_property
    def data(self) -> dict[str, Any]:
        """Policies × factors: training sets, scores and trials."""
        names, found = self.spec.names, dict[tuple[int, ...], list[tuple[float, int]]]()
        for row in self.results.rows:
            assert row.demos is not None
            assert row.trials is not None
            found.setdefault(tuple(row.demos[name] for name in names), []).append((float(row.score), row.trials))
        scores = np.array(list(found.values()))
        trials = scores[:, :, 1]
        assert scores.shape[1] == len(names)
        return {
            "demos": np.array(list(found), dtype=float) / self.unit,
            "score": scores[:, :, 0],
            "trials": trials,
            "many": np.where(trials < FEW, 0.0, 1.0),
            "now": self.now / self.unit,
            "nominal": self.spec.nominal / self.unit,
        }


def studies() -> list[Study]:
    """Six of emulated tables and four synthetic, from all families at even distances."""
    tables, formulas = families("results/tables"), families("benchmarks/synthetic_worlds.py")
    chosen = [tables[place] for place in np.linspace(0, len(tables) - 1, 6).round().astype(int)]
    chosen += [formulas[place] for place in np.linspace(0, len(formulas) - 1, 4).round().astype(int)]
    made = []
    for number, family in enumerate(chosen):
        count = family.count if isinstance(family, TableFamily) else (5, 8)[number % 2]
        regime = ("rollouts", "real")[number % 2]
        world = family.world(count, number)
        spec = world.spec("screen")
        measured = results(world, METHOD.training_sets(world, int(count > 5)), REGIMES[regime])
        made.append(Study(f"{family.name}, {regime}", spec, measured))
    return made


# The density


def named(phi: Any, count: int) -> dict[str, Any]:
    """The parameters by name; most are logarithms or logits."""
    vectors = ("level", "floor", "scale", "power", "share", "weight", "lean")
    parts = {name: phi[place * count : (place + 1) * count] for place, name in enumerate(vectors)}
    parts["repair"] = phi[7 * count : 7 * count + count**2].reshape(count, count)
    return parts | {name: phi[7 * count + count**2 + place] for place, name in enumerate(COMMON)}


def saturated(log: Any, q: Any) -> Any:
    """S(u) = u·(1 + u^q)^(−1/q), from log u."""
    return jnp.exp(log - jnp.logaddexp(0.0, q * log) / q)


def successes(phi: Any, demos: Any, now: Any, nominal: Any) -> Any:
    """Success on each factor's trials at `demos` (rows × N): rows × N."""
    p = named(phi, now.size)
    q, o = jnp.exp(p["q"]), jnp.exp(p["o"])
    effect, offset = jnp.exp(p["repair"]), jnp.exp(p["scale"])
    ratio = jnp.log(demos @ effect + offset) - jnp.log(now @ effect + offset)
    floor = jax.nn.sigmoid(p["floor"])
    own = p["level"] + jnp.log(floor + (1 - floor) * jnp.exp(-jnp.exp(p["power"]) * ratio))
    start, weight = jnp.exp(p["total_offset"]) + nominal, jnp.exp(p["weight"])
    total = jnp.log(start + demos @ weight) - jnp.log(start + now @ weight)
    tilts = jnp.exp(p["tilt"]) * jnp.where(p["lean"] > 0, p["lean"], 0.3 * p["lean"])
    exponent = -jnp.exp(p["total_power"]) * total - jnp.log((demos + o) / (now + o)) @ tilts
    common_floor = jax.nn.sigmoid(p["common_floor"])
    fallen = common_floor + (1 - common_floor) * jnp.exp(jnp.minimum(exponent, 30.0))
    shared = p["common"] + jnp.log(fallen)[:, None] + p["share"]
    return (1 - saturated(shared, q)) * (1 - saturated(own, q))


def log_likelihood(phi: Any, data: Mapping[str, Any]) -> Any:
    """Normal on the scale of arcsin √p with training noise where trials are many, binomial where they are few."""
    p = named(phi, data["now"].size)
    chance = jnp.clip(successes(phi, data["demos"], data["now"], data["nominal"]), 1e-6, 1 - 1e-6)
    good, trials, many = data["score"] * data["trials"], data["trials"], data["many"]
    few = (1 - many) * (good * jnp.log(chance) + (trials - good) * jnp.log1p(-chance))
    variance, common = 1 / (4 * trials + 2) + jnp.exp(2 * p["noise_own"]), jnp.exp(2 * p["noise_common"])
    miss = jnp.arcsin(jnp.sqrt((good + 0.375) / (trials + 0.75))) - jnp.arcsin(jnp.sqrt(chance))
    grown = 1 + common * (many / variance).sum(1)
    square = (many * miss**2 / variance).sum(1) - common * (many * miss / variance).sum(1) ** 2 / grown
    return few.sum() - 0.5 * (square + (many * jnp.log(variance)).sum(1) + jnp.log(grown)).sum()


def normal_prior(prior: Prior, count: int) -> tuple[Floats, Floats]:
    """Mean and covariance of the parameters under one component."""
    blocks: list[tuple[Floats, Floats]] = []
    for centre, shared, own in (prior.level, prior.floor, prior.scale, prior.power):
        blocks.append((np.full(count, centre), own**2 * np.eye(count) + shared**2))
    for centre, spread in ((0.0, prior.share), (0.0, prior.weight), prior.lean):
        blocks.append((np.full(count, centre), spread**2 * np.eye(count)))
    own_effect = np.eye(count, dtype=bool).ravel()
    centres = np.where(own_effect, prior.own_repair[0], prior.cross_repair[0])
    blocks.append((centres, np.diag(np.where(own_effect, prior.own_repair[1], prior.cross_repair[1]) ** 2)))
    for centre, spread in (
        prior.common,
        prior.common_floor,
        prior.total_power,
        prior.total_offset,
        prior.tilt,
        prior.noise_common,
        prior.noise_own,
        prior.sharpness,
        prior.offset,
    ):
        blocks.append((np.array([centre]), np.array([[spread**2]])))
    size = sum(len(mean) for mean, _ in blocks)
    covariance, at = np.zeros((size, size)), 0
    for mean, block in blocks:
        covariance[at : at + len(mean), at : at + len(mean)] = block
        at += len(mean)
    return np.concatenate([mean for mean, _ in blocks]), covariance


def between(share: float, count: int) -> tuple[Floats, Floats]:
    """Mean and covariance of the product of both components' densities to the powers share and 1 − share."""
    (one, first), (other, second) = (normal_prior(prior, count) for _, prior in PRIORS)
    precisions = share * np.linalg.inv(first), (1 - share) * np.linalg.inv(second)
    covariance = np.linalg.inv(precisions[0] + precisions[1])
    return covariance @ (precisions[0] @ one + precisions[1] @ other), covariance


# Our code on the same parameters


def phi_of(raw: Floats, mixture: Any) -> Floats:
    """Our parameters as the vector of this density: parameters × samples."""
    p = Parameters.of(raw, mixture)
    vectors = [p.log_level, _logit(p.floor), np.log(p.scale), np.log(p.power), p.log_share, np.log(p.weight)]
    rest = [p.log_common, _logit(p.common_floor), np.log(p.total_power), np.log(p.total_offset), np.log(p.tilt)]
    links = [p.links[0], p.links[1], np.log(mixture.sharpness), np.log(mixture.offset)]
    return np.concatenate([*vectors, p.lean, np.log(p.repair).reshape(-1, raw.shape[1]), np.stack([*rest, *links])])


def _logit(value: Floats) -> Floats:
    return np.asarray(np.log(value) - np.log1p(-value))


def densities_differ(study: Study) -> dict[str, float]:
    """Largest differences of the likelihood and of the prior's moments between our code and this one."""
    count, rng = len(study.spec.names), np.random.default_rng(0)
    mixture = draw_mixture(rng, 200, count)
    raw = 0.7 * rng.standard_normal((size_of(count), 200))
    ours = LogLikelihood(observe(study.spec, study.results))(raw, mixture)[0]
    phi = phi_of(raw, mixture)
    usual = np.abs(phi[7 * count :]).max(0) < 30
    theirs = np.array(jax.vmap(lambda one: log_likelihood(one, study.data))(phi.T))
    apart = (ours - theirs)[usual]
    plain = np.array([dense_likelihood(one, study) for one in phi.T[:20]])
    moments = 0.0
    for place, (_, prior) in enumerate(PRIORS):
        one = mixture[np.flatnonzero(mixture.component == place)[:1]]
        one = replace(one, sharpness=np.exp([prior.sharpness[0]]), offset=np.exp([prior.offset[0]]))
        zero = phi_of(np.zeros((size_of(count), 1)), one)
        matrix = np.column_stack([phi_of(unit[:, None], one)[:, 0] for unit in np.eye(size_of(count))]) - zero
        mean, covariance = normal_prior(prior, count)
        product = matrix @ matrix.T
        product[-2:, -2:] = covariance[-2:, -2:]  # q and o are drawn, not mapped
        moments = max(moments, np.abs(zero[:, 0] - mean).max(), np.abs(product - covariance).max())
    scale = np.abs(theirs).max()
    return {
        "likelihood": float(np.ptp(apart) / scale),
        "dense": float(np.ptp(theirs[:20] - plain) / scale),
        "prior": float(moments),
    }


def dense_likelihood(phi: Floats, study: Study) -> float:
    """The likelihood with whole covariance matrices, by scipy."""
    data, p = study.data, named(phi, len(study.spec.names))
    chance = np.clip(np.array(successes(phi, data["demos"], data["now"], data["nominal"])), 1e-6, 1 - 1e-6)
    good, trials = data["score"] * data["trials"], data["trials"]
    if not data["many"].any():
        return float((good * np.log(chance) + (trials - good) * np.log1p(-chance)).sum())
    found = np.arcsin(np.sqrt((good + 0.375) / (trials + 0.75)))
    value = 0.0
    for row in range(len(found)):
        own = np.diag(1 / (4 * trials[row] + 2) + np.exp(2 * p["noise_own"]))
        matrix = own + np.exp(2 * p["noise_common"])
        value += float(multivariate_normal(np.arcsin(np.sqrt(chance[row])), matrix).logpdf(found[row]))
    return value


# Sampling


def model(mean: Any, root: Any, data: Mapping[str, Any]) -> None:
    """Parameters as a linear map of standard normal variables, with the likelihood."""
    z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([mean.shape[0]]).to_event(1))
    numpyro.factor("likelihood", log_likelihood(mean + root @ z, data))


class Nuts:
    """One component's or an intermediate prior's posterior; compiled once for a shape of study."""

    def __init__(self, warmup: int, samples: int, chains: int) -> None:
        kernel = NUTS(model, target_accept_prob=0.85)
        self._run = MCMC(
            kernel,
            num_warmup=warmup,
            num_samples=samples,
            num_chains=chains,
            chain_method="sequential",
            progress_bar=False,
            jit_model_args=True,
        )

    def __call__(self, mean: Floats, covariance: Floats, study: Study, seed: int) -> Floats:
        """Samples: chains × samples × parameters."""
        root = np.linalg.cholesky(covariance)
        data = {name: jnp.asarray(value) for name, value in study.data.items()}
        self._run.run(jax.random.PRNGKey(seed), jnp.asarray(mean), jnp.asarray(root), data)
        z = np.array(self._run.get_samples(group_by_chain=True)["z"])
        return np.asarray(mean + z @ root.T)


def log_evidence(path: Sequence[Floats], count: int) -> float:
    """Log evidence of the first component less that of the second, by Bennett's ratio along the path."""
    priors = [multivariate_normal(*between(share, count)) for share in PATH]
    total = 0.0
    for place in range(len(PATH) - 1):
        upper, lower = (path[place + step].reshape(-1, path[0].shape[-1]) for step in (0, 1))
        # log ratios of the priors' densities; the likelihoods cancel
        above = priors[place].logpdf(upper) - priors[place + 1].logpdf(upper)
        below = priors[place].logpdf(lower) - priors[place + 1].logpdf(lower)
        sizes = np.log(len(above) / len(below))

        def balance(log_ratio: float, up: Floats = above, down: Floats = below, sizes: float = sizes) -> float:
            return float(expit(log_ratio - up - sizes).sum() - expit(down - log_ratio + sizes).sum())

        total += brentq(balance, -200.0, 200.0)
    return total


@dataclass(frozen=True)
class Other:
    """Samples of the quantities by NUTS, both components together."""

    values: Floats  # chains × samples × quantities
    weight: Floats  # chains × samples
    broad: tuple[float, float]  # posterior probability of the second component, and its error
    rhat: float
    seconds: float


def by_nuts(study: Study, places: Floats, runs: tuple[Nuts, Nuts]) -> Other:
    """The posterior mean of every quantity and all that is compared."""
    begun, count = time.monotonic(), len(study.spec.names)
    path = [runs[share not in (0.0, 1.0)](*between(share, count), study, seed) for seed, share in enumerate(PATH)]
    halves = [[part[:, half::2] for part in path] for half in (0, 1)]
    odds = [log_evidence(half, count) + np.log(PRIORS[0][0] / PRIORS[1][0]) for half in halves]
    middle = log_evidence(path, count) + np.log(PRIORS[0][0] / PRIORS[1][0])
    broad = float(expit(-middle))
    error = float(abs(expit(-odds[0]) - expit(-odds[1])) / 2)
    at, data = jnp.asarray(places / study.unit), study.data
    score = jax.jit(jax.vmap(lambda phi: successes(phi, at, data["now"], data["nominal"]).mean(-1)))
    parts = []
    for samples in (path[0], path[-1]):
        flat = np.array(score(samples.reshape(-1, samples.shape[-1])))
        parts.append(quantities(flat.T).T.reshape(*samples.shape[:2], -1))
    rhats = [_rhat(part) for part in parts]
    used = rhats[0] if broad < 0.01 else max(rhats)
    weight = np.repeat([1 - broad, broad], [part.shape[1] for part in parts])[None, :].repeat(CHAINS, 0)
    return Other(np.concatenate(parts, 1), weight, (broad, error), used, time.monotonic() - begun)


def _rhat(values: Floats) -> float:
    """The largest of all quantities but the probability."""
    return max(float(split_gelman_rubin(values[..., place])) for place in range(values.shape[-1] - 1))


def quantities(score: Floats) -> Floats:
    """From success (rows × samples): now, equal, best, each factor's gain, and whether best matches or beats equal."""
    beats = (score[2] >= score[1] - 1e-9).astype(float)
    return np.concatenate([score[:3], score[3:] - score[0], beats[None, :]])


def weighted(values: Floats, weight: Floats) -> tuple[float, float, float, float]:
    """Mean, standard deviation, 2.5% and 97.5% quantile."""
    weight = weight / weight.sum()
    mean = float(weight @ values)
    order = np.argsort(values)
    low, high = np.interp([0.025, 0.975], np.cumsum(weight[order]) - 0.5 * weight[order], values[order])
    return mean, float(weight @ (values - mean) ** 2) ** 0.5, float(low), float(high)


@dataclass(frozen=True)
class Row:
    """One quantity of one study."""

    name: str
    ours: tuple[float, float, float, float]
    other: tuple[float, float, float, float]
    ours_error: Floats  # of mean, sd and quantiles
    other_error: Floats
    single: float  # distance of one run's mean from that over seeds, in standard deviations

    @property
    def agrees(self) -> bool:
        """Within what decision 14 allows and two Monte-Carlo standard errors."""
        spread, slack = self.other[1], 2 * np.hypot(self.ours_error, self.other_error)
        apart = np.abs(np.array(self.ours) - np.array(self.other))
        if self.name.startswith("P("):
            return bool(apart[0] <= CHANCE + slack[0])
        low, high = RATIO
        ratio = low * spread - slack[1] <= self.ours[1] <= high * spread + slack[1]
        return bool(
            apart[0] <= MEAN * spread + slack[0] and ratio and (apart[2:] <= QUANTILE * spread + slack[2:]).all()
        )


@dataclass(frozen=True)
class Outcome:
    """What was found in one study."""

    name: str
    rows: list[Row]
    line: str
    rhat: float
    densities: dict[str, float]


def compare(number: int, samples: int, seeds: int) -> Outcome:
    """One study, in a process of its own: compiled code would fill the process's memory map."""
    study = studies()[number]
    runs = Nuts(samples // 2, samples, CHAINS), Nuts(samples // 4, samples // 2, 1)
    posteriors = [fit_posterior(study.spec, study.results, seed=seed) for seed in range(seeds)]
    best = np.array(list(posteriors[0].choose(BUDGET).best.demos.values()), dtype=float)
    equal = np.array(list(posteriors[0].equal(BUDGET).demos.values()), dtype=float)
    places = study.now + np.concatenate([np.zeros((1, len(best))), [equal, best], BUDGET * np.eye(len(best))])
    ours = np.stack([quantities(posterior.score(places)) for posterior in posteriors])  # seeds × quantities × samples
    other = by_nuts(study, places, runs)
    names = ["current success", "after an equal split", "after the best allocation"]
    names += [f"gain of {name}" for name in study.spec.names] + ["P(best matches or beats equal)"]
    rows = []
    for place, name in enumerate(names):
        each = np.array([weighted(values, np.ones(values.size)) for values in ours[:, place]])
        chains = np.array([weighted(*pair) for pair in zip(other.values[..., place], other.weight, strict=True)])
        found = weighted(ours[:, place].ravel(), np.ones(ours[:, place].size))
        there = weighted(other.values[..., place].ravel(), other.weight.ravel())
        half = other.values.shape[1] // 2
        apart = abs(other.values[:, :half, place].mean() - other.values[:, half:, place].mean())
        error = chains.std(0, ddof=1) / np.sqrt(len(chains)) + other.broad[1] * apart
        single = float(each[:, 0].std(ddof=1) / max(there[1], 1e-9))
        rows.append(Row(name, found, there, each.std(0, ddof=1) / np.sqrt(seeds), error, single))
    line = _line(study, rows, other, posteriors)
    return Outcome(study.name, rows, line, other.rhat, densities_differ(study))


def _line(study: Study, rows: Sequence[Row], other: Other, posteriors: Sequence[Posterior]) -> str:
    normal, chance = rows[:-1], rows[-1]
    shares = [float((posterior.mixture.component == 1).mean()) for posterior in posteriors]
    ratios = [row.ours[1] / row.other[1] for row in normal]
    cells = [
        study.name,
        f"{np.mean(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})",
        f"{other.broad[0]:.2f} ± {other.broad[1]:.2f}",
        f"{max(abs(row.ours[0] - row.other[0]) / row.other[1] for row in normal):.2f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        f"{max(np.abs(np.subtract(row.ours[2:], row.other[2:])).max() / row.other[1] for row in normal):.2f}",
        f"{chance.ours[0] - chance.other[0]:+.2f}",
        f"{sum(row.agrees for row in rows)} of {len(rows)}",
        f"{np.sqrt(np.mean([row.single**2 for row in normal])):.2f}",
        f"{other.rhat:.3f}",
        f"{other.seconds:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


COLUMNS = (
    "study",
    "ours: P(broad), seeds",
    "NUTS: P(broad)",
    "largest difference of means, sd",
    "ratio of sd",
    "of quantiles, sd",
    "of P(match or beat Equal)",
    "agree",
    "one run's error of a mean, sd",
    "R-hat",
    "NUTS, s",
)


def detail(outcome: Outcome) -> list[str]:
    """All quantities of a study, in points."""
    lines = [f"### {outcome.name}", "", "| quantity | ours | NUTS | difference, sd | ratio of sd | agrees |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    for row in outcome.rows:
        both = [f"{100 * one[0]:.1f} ({100 * one[2]:.1f} to {100 * one[3]:.1f})" for one in (row.ours, row.other)]
        apart, ratio = (row.ours[0] - row.other[0]) / max(row.other[1], 1e-9), row.ours[1] / max(row.other[1], 1e-9)
        if row.name.startswith("P("):
            both = [f"{one[0]:.2f}" for one in (row.ours, row.other)]
        cells = [row.name, *both, f"{apart:+.2f}", f"{ratio:.2f}", "yes" if row.agrees else "**no**"]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=10, help="the first so many")
    parser.add_argument("--samples", type=int, default=500, help="of each chain")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of our sampler")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    begun, found = time.monotonic(), list[Outcome]()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for place in range(options.studies):
            found.append(pool.submit(compare, place, options.samples, options.seeds).result())
            print(found[-1].line, file=sys.stderr, flush=True)
    every = [row for outcome in found for row in outcome.rows]
    densities = {name: max(outcome.densities[name] for outcome in found) for name in found[0].densities}
    agree = f"{sum(row.agrees for row in every)} of {len(every)} quantities agree"
    where = f"{datetime.date.today().isoformat()}, {processor()}, one process, {time.monotonic() - begun:.0f} s"
    versions = f"Python {platform.python_version()}, numpyro {numpyro.__version__}, jax {jax.__version__}"
    page = [
        "# The sampler against NumPyro",
        "",
        f"{where}, {versions}; `python benchmarks/numpyro_check.py --studies {options.studies} --samples "
        f"{options.samples} --seeds {options.seeds} --save`. Seeds 0 to {options.seeds - 1} (ours) and 0 to "
        f"{len(PATH) - 1} (NUTS).",
        "",
        "What is compared and what counts as agreement was [written down before]"
        "(../../docs/decisions/0014-response-model.md#checked-against-another-sampler).",
        "",
        f"**{agree}.** Densities at random points: the likelihoods differ by at most {densities['likelihood']:.0e} of "
        f"their size up to a constant ({densities['dense']:.0e} from scipy's with whole matrices), the prior's means "
        f"and covariances by {densities['prior']:.0e}.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---|" + "---:|" * (len(COLUMNS) - 1),
        *(outcome.line for outcome in found),
        "",
        "Success and gains below are in points: mean (2.5% to 97.5%).",
        "",
        *(line for outcome in found for line in detail(outcome)),
    ]
    text = "\n".join(page)
    print(text)
    if options.save:
        write_text(TARGET, text)
    failed = [f"{outcome.name}: R-hat {outcome.rhat:.3f}" for outcome in found if outcome.rhat > RHAT]
    for name, rows in [("all studies", every), *((outcome.name, outcome.rows) for outcome in found)]:
        share = np.mean([row.agrees for row in rows])
        failed += [f"{name}: too many disagree"] if share < (0.95 if rows is every else 0.75) else []
    failed += [f"the {name} differs" for name, value in densities.items() if value > 1e-6]
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
