"""fsc proxy, fsc remix: answers without rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.show import json_option, percent, print_json, print_table, say
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.errors import InvalidInput, NotEnoughData

if TYPE_CHECKING:
    from factored_scaling.data.frames import FrameTable
    from factored_scaling.study import Study


@click.command("proxy")
@study_argument
@json_option
def proxy_command(study: str, as_json: bool) -> None:
    """Proxy scores from embedding similarity, and how well they agree with trials.

    Each policy's score is how near the held-out first observations lie to its training set in its own embedding, for
    the k = 1, 5 and 10 nearest. Where trials exist too, the rank agreement of the two is shown: near 1, the proxy can
    replace trials; near 0, it cannot.

    \b
    fsc proxy my-study
    fsc recommend my-study --budget 100 --proxy 1         weighed beside the trials
    """
    from factored_scaling.core.proxy import KS
    from factored_scaling.study.proxy import proxy_of_runs, proxy_trust

    with Target.parse(study).study() as opened:
        by_k = {k: proxy_of_runs(opened, k) for k in KS}
        trust = {}
        for k in KS:
            try:
                trust[k] = proxy_trust(opened, k)
            except NotEnoughData as error:
                reason = str(error)
        names = opened.spec.names
    runs = [run for run, _ in by_k[KS[0]]]
    scores = {k: [score.overall for _, score in pairs] for k, pairs in by_k.items()}
    if as_json:
        entries = [
            {"run": run.id, "demos": run.demos, "score": run.mean, "proxy": {str(k): scores[k][i] for k in KS}}
            for i, run in enumerate(runs)
        ]
        agreement = {
            str(k): {"spearman": t.spearman, "interval": [t.interval.low, t.interval.high], "p_value": t.p_value}
            for k, t in trust.items()
        }
        print_json({"runs": entries, "agreement": agreement})
        return
    rows = [
        [
            str(run.id),
            *(str(run.demos[name]) for name in names),
            *(f"{scores[k][i]:.3f}" for k in KS),
            "–" if run.mean is None else percent(run.mean),
        ]
        for i, run in enumerate(runs)
    ]
    print_table("Proxy scores", ["id", *names, *(f"k = {k}" for k in KS), "trials"], rows)
    for k, agreement_k in trust.items():
        low, high = agreement_k.interval.low, agreement_k.interval.high
        say(
            f"k = {k}: rank agreement with trials {agreement_k.spearman:+.2f} ({low:+.2f} to {high:+.2f}), "
            f"p = {agreement_k.p_value:.3f} over {agreement_k.policies} policies"
        )
    if not trust:
        say(f"no trust check: {reason}")


@click.command("remix")
@study_argument
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Training seed.")
@click.option("--device", default="cpu", show_default=True, help="Where networks are trained: cpu, cuda, mps.")
@click.option("--preset", default="small", show_default=True, help="small: minutes on a core. paper: for a GPU.")
@json_option
def remix_command(study: str, seed: int, device: str, preset: str, as_json: bool) -> None:
    """Learn Re-Mix's weights over the factors and save them for `fsc recommend --strategy remix`.

    Trains a reference and a proxy model on the study's demonstrations (simulated, or of its LeRobot dataset), without
    rollouts. STUDY/remix/weights.png plots the weights during training.

    \b
    fsc remix my-study
    fsc recommend my-study --budget 100 --strategy remix
    """
    from factored_scaling.cli.run import Bars
    from factored_scaling.machine import prepare_device
    from factored_scaling.policies.capacity import check_device
    from factored_scaling.policies.config import RemixConfig
    from factored_scaling.policies.remix import plot_trajectory, train_remix

    check_device(device)
    prepare_device(device)
    target = Target.parse(study)
    folder = target.folder or Path.cwd()
    with target.study() as opened:
        config = RemixConfig.from_mapping({"preset": preset})
        learned = train_remix(all_frames(opened, folder, device), config, seed, folder / "remix", Bars.single, device)
        opened.save_remix_weights(learned.weights, learned.domains)
    plot_trajectory(learned, folder / "remix" / "weights.png")
    if as_json:
        print_json({"weights": learned.weights})
        return
    print_table("Re-Mix", ["factor", "weight"], [[name, f"{weight:.3f}"] for name, weight in learned.weights.items()])
    say(f"wrote {folder / 'remix' / 'weights.png'}")


def all_frames(study: Study, folder: Path, device: str) -> FrameTable:
    """The frames of all the study's demonstrations, with the factors that the record knows."""
    from dataclasses import replace

    from factored_scaling.cli.run import Bars

    spec, episodes = study.spec, study.dataset.episodes
    ids = [episode.id for episode in episodes]
    if spec.task is not None:
        from factored_scaling.backends.simulation import Lab

        return Lab(spec.task, folder, device, spec.policy.get("image_size")).frames(ids, Bars.single)
    if spec.dataset is not None:
        from factored_scaling.backends.diffusion import DiffusionBackend, DiffusionSettings

        # another trainer's policy may say nothing of pictures, or otherwise
        seen = {key: spec.policy[key] for key in ("image_size", "cameras") if key in spec.policy}
        settings = DiffusionSettings.from_mapping({"dataset": spec.dataset}, seen, folder.resolve())
        table = DiffusionBackend(settings, folder, device).frames(ids, Bars.single)
        return replace(table, factors=tuple(episode.factor for episode in episodes))
    raise InvalidInput(
        "this study names no dataset and no simulator task",
        where="dataset",
        hint="learn them elsewhere, then `fsc recommend STUDY --budget K --strategy remix --weights FILE.json`",
    )
