"""fsc runs, fsc record, fsc extend"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from factored_scaling.cli.show import json_option, percent, plural, print_json, print_table, quoted, say, with_interval
from factored_scaling.cli.target import Target, planned_anew, study_argument
from factored_scaling.cli.workers import STATES, count_states, failures, watch, work_lines
from factored_scaling.core.trials import Score, Tally, Trial, known_result, result_of_tallies, score_of_tallies
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.io.tables import share_cell

if TYPE_CHECKING:
    from factored_scaling.data.lerobot.collection import Collected, Listed
    from factored_scaling.store import Measurement, RunRow
    from factored_scaling.study import Study


@click.command("runs")
@study_argument
@click.option("--state", type=click.Choice(STATES), help="Only runs in this state.")
@click.option("--episodes", metavar="RUN", help="Print the demonstrations that RUN is trained on, one id per line.")
@click.option(
    "--watch",
    "watching",
    is_flag=True,
    help="Show progress until no run is left. Ctrl-C stops watching, not the workers.",
)
@json_option
def runs_command(study: str, state: str | None, episodes: str | None, watching: bool, as_json: bool) -> None:
    """List the study's runs in the order to train them, the latest round first.

    \b
    fsc runs my-study --state pending
    fsc runs my-study --episodes 3                 which demonstrations to train policy 3 on
    fsc runs my-study --watch                      from any machine that reaches the database
    fsc runs my-study --json
    """
    target = Target.parse(study)
    folder = (target.folder or Path.cwd()).resolve()
    if watching and (as_json or state is not None or episodes is not None):
        raise InvalidInput("shows all runs at work", where="--watch", hint="leave the other options out")
    with target.study() as opened:
        if not opened.store.read_only:
            planned_anew(opened)
        if episodes is not None:
            ids = opened.find_run(episodes).spec.episodes
            print_json(list(ids)) if as_json else say("\n".join(ids))
            return
        if watching:
            watch(opened, folder)
            return
        runs, spec, index = opened.runs(), opened.spec, opened.round.index
        tallies, means = opened.store.tallies(opened.id), opened.store.study_scores(opened.id)
        at_work = work_lines(opened, folder, runs)
        found = [run for run in runs if state is None or run.state == state]
        failed = failures(opened, found)
    if as_json:
        entries = [_entry(run, tallies.get(run.id, []), means.get(run.id, [])) for run in found]
        print_json({"study": spec.name, "round": index, "runs": entries})
        return
    scores = [_score(tallies.get(run.id, []), means.get(run.id, [])) for run in found]
    rows = [
        [str(r.id), *(str(r.demos[name]) for name in spec.names), str(r.seed), r.state, score, r.digest[:8]]
        for r, score in zip(found, scores, strict=True)
    ]
    title = f"{spec.name}: round {index}, {count_states(runs)}"
    print_table(title, ["id", *spec.names, "seed", "state", "score", "digest"], rows)
    for line in at_work if state in (None, "running") else []:
        say(line)
    for line in failed:
        say(line)


@click.command("record", context_settings={"ignore_unknown_options": True})  # so that -1 is a score, and refused as one
@study_argument
@click.argument("run")
@click.argument("given", nargs=-1, metavar="[SCORES]...")
@click.option(
    "--factor",
    default="",
    metavar="NAME",
    help="What the trials varied: a factor, names joined by +, or * for all factors.",
)
@click.option("--setting", default="", help="The test value or condition, as free text.")
@click.option("--note", default="", help="A remark, stored with the trials.")
@click.option("--key", help="Name of the trial. The same name counts once; one score only.")
@click.option("--done", is_flag=True, help="Finish the run; its trials cannot change afterwards.")
def record_command(
    study: str, run: str, given: tuple[str, ...], factor: str, setting: str, note: str, key: str | None, done: bool
) -> None:
    """Append trials to RUN (its id or digest): SCORES are numbers from 0 to 1, one per trial.

    \b
    fsc record my-study 3 --factor lighting 1 0 1 1
    fsc record my-study 3 --factor '*' 0.25 0.5 --note "gripper slipped"
    fsc record my-study 3 --done
    """
    scores = [_trial_score(score, f"score {number}") for number, score in enumerate(given, start=1)]
    if key is not None and len(scores) != 1:
        raise InvalidInput("a key names one trial; give one score", where="--key")
    if not scores and not done:
        raise InvalidInput("no scores", hint="give one number from 0 to 1 per trial, or --done")
    names = tuple(name.strip() for name in factor.split("+")) if factor else ()
    if "" in names or len(set(names)) < len(names) or ("*" in names and len(names) > 1):
        what = f"expected factor names joined by +, each once, or * alone, not {factor!r}"
        raise InvalidInput(what, where="--factor")
    keys = [key] if key is not None else [f"recorded/{uuid.uuid4().hex}" for _ in scores]
    trials = [Trial(k, score, names, setting, note) for k, score in zip(keys, scores, strict=True)]
    with Target.parse(study).study() as opened:
        row = opened.find_run(run)
        if done and not trials and not row.trials and not row.scores:
            raise NotEnoughData(f"run {row.id} has no trials yet", where="--done", hint="give their scores")
        new = opened.conclude(row.id, trials) if done else opened.record(row.id, trials)
        say(f"run {row.id}: {plural(new, 'new trial')}; {_summary(opened, row.id)}{'; done' if done else ''}")


def _trial_score(text: str, where: str) -> float:
    try:
        return share_cell(text, where)
    except InvalidInput as error:
        hint = "give one number from 0 to 1 per trial, such as 1 0 1 or 0.8"
        raise InvalidInput(error.what, where=where, hint=hint) from None


@click.command("extend")
@study_argument
@click.option("--collected", multiple=True, metavar="FACTOR=DEMOS", help="New demos of a factor (or nominal=…).")
@click.option("--ticked", is_flag=True, help="Use the demos ticked off on the lists of `fsc sheet collect`.")
@click.option("--as-recommended", is_flag=True, help="Use exactly what the last `fsc recommend --save` recommended.")
@click.option("--dataset", type=click.Path(path_type=Path), help="A labelled LeRobot dataset with the new episodes.")
@click.option(
    "--episodes", type=click.Path(path_type=Path), help="A CSV with the new episodes, columns episode and factor."
)
@click.option(
    "--compare",
    is_flag=True,
    help="With --dataset or --episodes: only compare with the recommendation.",
)
@json_option
def extend_command(
    study: str,
    collected: tuple[str, ...],
    ticked: bool,
    as_recommended: bool,
    dataset: Path | None,
    episodes: Path | None,
    compare: bool,
    as_json: bool,
) -> None:
    """Start the next round with the demonstrations that were collected.

    Earlier runs and their scores stay. Policies that the new plan shares with them are not trained again; policies that
    earlier rounds left untrained come after the new ones.

    With --dataset, the episodes that are new to the study are compared with the recommendation: missing, extra and
    unusable ones are listed, and the study continues with the episodes that exist. With --episodes, the CSV may list
    the demonstrations of all rounds; known ones are skipped. A study with a `dataset:` or with episode names of your
    own takes one of these instead of counts.

    \b
    fsc recommend my-study --budget 100 --save
    fsc extend my-study --as-recommended                                    all of it was collected
    fsc extend my-study --ticked                                        what the lists of fsc sheet say
    fsc extend my-study --collected camera_pose=40 --collected lighting=12     or this instead
    fsc extend my-study --episodes demos.csv                            file names of your own
    fsc extend my-study --dataset recordings/fold-towel --compare       what is missing so far?
    fsc extend my-study --dataset recordings/fold-towel
    """
    from factored_scaling.cli.episodes import NewEpisodes, named
    from factored_scaling.scoring.sheets import listed_in_round

    ways = bool(collected) + ticked + as_recommended + (dataset is not None) + (episodes is not None)
    if ways != 1:
        hint = (
            "--collected FACTOR=DEMOS (once per factor), --ticked, --as-recommended, --episodes CSV or --dataset PATH"
        )
        if ways > 1:
            raise InvalidInput("several ways to say what was collected", hint=f"give one of {hint}")
        raise InvalidInput("say what was collected", hint=hint)
    if compare and dataset is None and episodes is None:
        hint = "give --dataset PATH or --episodes CSV"
        raise InvalidInput("there is nothing to compare", where="--compare", hint=hint)
    with Target.parse(study).study() as opened:
        advice = opened.saved_recommendation()
        if dataset is not None:
            _extend_from(opened, study, dataset, advice or listed_in_round(opened), compare, as_json)
            return
        if opened.spec.dataset is not None:
            # counts would become episodes that no dataset has, and a round cannot be taken back
            hint = f"label the recordings and give them: `fsc extend {quoted(study)} --dataset PATH`"
            raise InvalidInput("the study is trained on episodes of a dataset, which numbers do not name", hint=hint)
        if ticked or episodes is not None:
            advice = advice or listed_in_round(opened)
        new = None
        if episodes is not None:
            new = NewEpisodes.read(episodes, opened)
        elif as_recommended and advice is not None and "episodes" in advice:
            new = NewEpisodes.of_pool(advice["episodes"])
        elif named(opened):
            hint = f"list the new ones: `fsc extend {quoted(study)} --episodes CSV`"
            raise InvalidInput("the study's demonstrations have names, which numbers do not give", hint=hint)
        counts = new.counts if new is not None else _counted(opened, collected, ticked, advice)
        before = opened.round.index
        if not compare:
            opened.extend(new.episodes if new else {name: count for name, count in counts.items() if count}, advice)
        if as_json:
            sizes = {"factors": opened.spec.sizes, "nominal": opened.spec.nominal}
            print_json({"round": opened.round.index, **sizes, "order": advice} | ({"collected": counts} if new else {}))
            return
        wanted = advice["allocation"] if advice else {}
        _print_round(opened, before, compare, wanted, counts)
        if new is not None and new.known:
            say(f"{new.known} episodes of {episodes} are in the study already")
        if advice and any(wanted.get(name, 0) != counts.get(name, 0) for name in opened.spec.names):
            say("what was collected differs from the recommendation; the next fit uses what was collected")
        _say_next(opened, study, f"--episodes {quoted(episodes)}", compare)


def _counted(opened: Study, collected: tuple[str, ...], ticked: bool, advice: dict[str, Any] | None) -> dict[str, int]:
    """How many demonstrations of each factor were collected, where they are known by their number."""
    from factored_scaling.cli.start import pairs
    from factored_scaling.scoring.sheets import collected_in_round

    if collected:
        return pairs(collected, "--collected")
    if ticked:
        counts = collected_in_round(opened)
        if not counts:
            raise NotEnoughData("nothing was ticked off in this round", hint="`fsc sheet import STUDY LIST.csv`")
        return counts
    if advice is None:
        hint = "`fsc recommend STUDY --budget K --save` first"
        raise NotEnoughData("no recommendation was saved in this round", hint=hint)
    return dict(advice["allocation"])


def _extend_from(
    opened: Study, study: str, root: Path, advice: dict[str, Any] | None, compare: bool, as_json: bool
) -> None:
    """Extend by the episodes of a labelled dataset that the study does not have yet."""
    from factored_scaling.cli.start import seen_from
    from factored_scaling.data.lerobot.collection import collected, labelled

    wanted = advice["allocation"] if advice else None
    found = collected(labelled(root), opened.dataset, opened.spec.names, wanted, _listed(opened))
    before = opened.round.index
    if not compare:
        if not found.episodes:
            for sentence in found.sentences():
                say(f"• {sentence}", err=True)
            hint = f"`fsc label {quoted(root)}` shows what is labelled"
            raise NotEnoughData("no labelled episode is new to the study", where=str(root), hint=hint)
        opened.extend(found.episodes, advice)
    if as_json:
        print_json(_found_entry(opened, found) | {"order": advice})
        return
    _print_round(opened, before, compare, wanted or {}, found.counts)
    for sentence in found.sentences():
        say(f"• {sentence}")
    if wanted is None:
        say("no recommendation was saved in this round, so there is nothing to compare with")
    home = Target.parse(study).folder or Path()
    elsewhere = opened.spec.dataset is None or (home / opened.spec.dataset).resolve() != root.resolve()
    if elsewhere and not found.gone:  # with some gone, a sentence above says that another dataset is needed
        there = f"`dataset:` in {home / 'study.yaml'}"
        say(f"{there} names another dataset; write `dataset: {seen_from(home, root)}` there before training")
    _say_next(opened, study, f"--dataset {quoted(root)}", compare)


def _say_next(opened: Study, study: str, option: str, compare: bool) -> None:
    """Say how many policies the new round has to train, and what earlier rounds left undone."""
    if compare:
        say(f"nothing was changed; `fsc extend {quoted(study)} {option}` continues with these episodes")
        return
    pending = [run for run in opened.runs() if run.state == "pending"]
    before = sum(opened.round.index not in run.rounds for run in pending)
    after = f", after them {before} that earlier rounds left" if before else ""
    say(f"{len(pending) - before} policies to train{after}; `fsc runs {quoted(study)}` lists them")


def _listed(opened: Study) -> dict[int, Listed]:
    """What the lists of this round say of episodes whose number was written down."""
    from factored_scaling.data.lerobot.collection import Listed
    from factored_scaling.scoring.sheets import collections

    rows = [row for found in collections(opened) if found.created >= opened.round.created for row in found.rows]
    return {
        int(row.episode): Listed(row.code, row.demo.factor, row.shown or row.demo.value)
        for row in rows
        if row.collected and row.episode.isascii() and row.episode.isdigit()
    }


def _found_entry(opened: Study, found: Collected) -> dict[str, Any]:
    return {
        "round": opened.round.index,
        "factors": opened.spec.sizes,
        "nominal": opened.spec.nominal,
        "collected": found.counts,
        "missing": found.missing,
        "extra": found.extra,
        "unlabelled": list(found.unlabelled),
        "doubly_varied": list(found.doubly_varied),
        "unknown": {name: list(places) for name, places in found.unknown.items()},
        "mislabelled": [
            {"episode": e, "code": said.code, "listed": said.text(), "label": label.text, "value": label.value}
            for e, said, label in found.mislabelled
        ],
        "not_in_dataset": [{"episode": e, "code": said.code, "listed": said.text()} for e, said in found.nowhere],
        "relabelled": [{"episode": e, "was": was, "is": now} for e, was, now in found.relabelled],
        "gone": found.gone,
    }


def _print_round(opened: Study, before: int, compare: bool, wanted: dict[str, int], counts: dict[str, int]) -> None:
    title = f"Round {before}, so far" if compare else f"Round {before} → {opened.round.index}"
    rows = [[n, str(wanted.get(n, "–")), str(counts.get(n, 0)), str(size)] for n, size in opened.spec.sizes.items()]
    if counts.get("nominal"):
        rows.append(["nominal", "–", str(counts["nominal"]), str(opened.spec.nominal)])
    print_table(title, ["factor", "recommended", "collected", "demos now"], rows)


def _entry(run: RunRow, tallies: Sequence[Tally], means: Sequence[Measurement]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": run.id,
        "digest": run.digest,
        "state": run.state,
        "demos": run.demos,
        "seed": run.seed,
        "trials": run.trials,
        "score": None,
        "interval": None,
        "worker": run.worker,
        "error": run.error,
    }
    score = _overall(tallies, means)
    if score is not None:
        entry["score"] = score.mean
        if score.trials:
            entry["interval"] = [score.interval.low, score.interval.high]
    if tallies:
        by_factor = result_of_tallies(tallies).by_factor
        entry["factors"] = {"+".join(name): score.mean for name, score in by_factor.items()}
    return entry


def _score(tallies: Sequence[Tally], means: Sequence[Measurement]) -> str:
    score = _overall(tallies, means)
    if score is None:
        return "–"
    return f"{with_interval(score.mean, score.interval)} of {score.trials}" if score.trials else percent(score.mean)


def _overall(tallies: Sequence[Tally], means: Sequence[Measurement]) -> Score | None:
    """A run's score from its trials, or else from means; over 0 trials when their number is unknown."""
    if tallies:
        return score_of_tallies(tallies)
    return known_result((mean.factor, mean.score, mean.trials) for mean in means).overall if means else None


def _summary(study: Study, run_id: int) -> str:
    tallies = study.store.tallies(study.id, [run_id]).get(run_id)
    if not tallies:
        return "no trials yet"
    score = score_of_tallies(tallies)
    return f"score {with_interval(score.mean, score.interval)} over {plural(score.trials, 'trial')}"
