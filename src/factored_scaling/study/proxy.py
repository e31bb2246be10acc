"""FSC-Proxy scores of a study, from the similarities that workers stored, and their agreement with trials."""

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
    """Every run with its proxy score, normalised once over all runs."""
    if k not in KS:
        raise InvalidInput(f"k must be 1, 5 or 10, not {k}", where="proxy")
    with study.store.one_moment():
        similarities = {document.key: document.body for document in study.store.documents(study.id, SIMILARITY)}
        runs = [run for run in study.runs() if run.digest in similarities]
    if not runs:
        raise NotEnoughData(
            "no run has proxy scores",
            hint="`fsc run` computes them in the simulator, with `proxy: {held_out: DATASET}` under `trainer:`, "
            "or from `embeddings` in a command's result",
        )
    factors = similarities[runs[0].digest]["factors"]
    scores = proxy_scores({run.digest: similarities[run.digest]["nearest"][str(k)] for run in runs}, factors)
    return [(run, scores[run.digest]) for run in runs]


def proxy_results(study: Study, k: int = 1) -> Results:
    """Proxy scores as `Results`, for the same fits and strategies as measured scores."""
    rows = [
        Row(score=score.overall, demos=run.demos, seed=run.seed, place=f"run {run.id}")
        for run, score in proxy_of_runs(study, k)
    ]
    return Results(tuple(rows))


def proxy_trust(study: Study, k: int = 1) -> RankAgreement:
    """Rank agreement between proxy scores and trials."""
    pairs = [(run, score) for run, score in proxy_of_runs(study, k) if run.state == "done" and run.mean is not None]
    proxy = {run.digest: score.overall for run, score in pairs}
    return rank_agreement(proxy, {run.digest: run.mean for run, _ in pairs if run.mean is not None})
