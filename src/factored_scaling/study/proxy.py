"""FSC-Proxy over a study: similarities kept by the workers become scores, and are checked against real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from factored_scaling.core.proxy import KS, ProxyScore, RankAgreement, proxy_scores, rank_agreement
from factored_scaling.core.results import Results, Row
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.store import RunRow
from factored_scaling.store.documents import SIMILARITY

if TYPE_CHECKING:
    from factored_scaling.study import Study


def proxy_of_runs(study: Study, k: int = 1) -> list[tuple[RunRow, ProxyScore]]:
    """Every run with its stand-in score, normalised once over all of them."""
    if k not in KS:
        raise InvalidInput(f"k = {k} was not kept", where="proxy", hint=f"one of {', '.join(map(str, KS))}")
    with study.store.one_moment():
        kept = {document.key: document.body for document in study.store.documents(study.id, SIMILARITY)}
        runs = [run for run in study.runs() if run.digest in kept]
    if not runs:
        raise NotEnoughData(
            "no run has kept its similarities",
            hint="`fsc run` keeps them in the simulator, with `proxy: {held_out: DATASET}` under `trainer:`, and where "
            "a command's result names `embeddings`",
        )
    factors = kept[runs[0].digest]["factors"]
    scores = proxy_scores({run.digest: kept[run.digest]["nearest"][str(k)] for run in runs}, factors)
    return [(run, scores[run.digest]) for run in runs]


def proxy_results(study: Study, k: int = 1) -> Results:
    """Stand-in scores as results: the same fit and allocation take them."""
    rows = [
        Row(score=score.overall, demos=run.demos, seed=run.seed, place=f"run {run.id}")
        for run, score in proxy_of_runs(study, k)
    ]
    return Results(tuple(rows))


def proxy_trust(study: Study, k: int = 1) -> RankAgreement:
    """Does the proxy order the policies as their trials do?"""
    pairs = [(run, score) for run, score in proxy_of_runs(study, k) if run.state == "done" and run.mean is not None]
    proxy = {run.digest: score.overall for run, score in pairs}
    return rank_agreement(proxy, {run.digest: run.mean for run, _ in pairs if run.mean is not None})
