"""One story: a number that two of command line, JSON, report and dashboard show is the same in all of them."""

from __future__ import annotations

import html
import json
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.cli.conftest import run_fsc
from tests.web.conftest import client_of

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.io.files import write_study
from factored_scaling.study import Study

NAMES = ("camera_pose", "lighting", "table_height", "background")
ESTIMATE, DIFFERENCE = r"(\d+\.\d% \(\d+–\d+\))", r"([+−]?\d+\.\d points \([+−]?\d+\.\d to [+−]?\d+\.\d\))"
# sentences that several views print, by the names of their numbers
SENTENCES = {
    ("predicted",): rf"Predicted success: {ESTIMATE}",
    ("equal",): r"; an equal split: (\d+\.\d%)",
    ("top",): r"; the paper's Top: (\d+\.\d%)",
    ("now",): rf"Current success: {ESTIMATE}",
    ("probability", "difference"): rf"(\d+\.?\d?%) likely to match or beat an equal split; difference {DIFFERENCE}",
    ("best", "best probability", "best difference"): (
        rf"the best alternative \([^)]*: (\d+\.\d%)\) has only a (\d+\.?\d?%) chance of matching it "
        rf"\(60% required\); difference {DIFFERENCE}"
    ),
    ("gain over equal",): r"expected to gain (\d+\.\d) points more than an equal split; retraining",
    ("noise",): r"retraining alone moves success by (\d+\.\d)(?: points)?\.",
    ("regret",): r"Expected regret of acting now: (\d+\.\d) points",
}
Numbers = dict[str, set[str]]


def sentences(text: str) -> Numbers:
    """Every number of the sentences in a text; more than one where a sentence is printed with different numbers."""
    found: Numbers = {}
    for names, pattern in SENTENCES.items():
        for match in re.finditer(pattern, text):
            for name, value in zip(names, match.groups(), strict=True):
                found.setdefault(name, set()).add(value)
    return found


def percent(value: float, digits: int = 1) -> str:
    return f"{100 * value:.{digits}f}%"


def points(value: float) -> str:
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def estimate(data: dict[str, float]) -> str:
    return f"{percent(data['mean'])} ({100 * data['low']:.0f}–{100 * data['high']:.0f})"


def difference(data: dict[str, float]) -> str:
    return f"{points(data['mean'])} points ({points(data['low'])} to {points(data['high'])})"


def chance(value: float) -> str:
    """In whole percent, with a decimal where rounding would cross 60%."""
    crosses = (round(100 * value) >= 60) != (value >= 0.6)
    return f"{int(1000 * value) / 10}%" if crosses else f"{round(100 * value)}%"


def of_json(data: dict[str, Any]) -> Numbers:
    """What the JSON document says, rounded as the pages say that they round."""
    model = data["response_model"]
    others = model["alternatives"]
    found = {
        "predicted": estimate(model["predicted"]),
        "now": estimate(model["now"]),
        "equal": percent(others["equal"]["mean"]),
        "probability": chance(model["probability_at_least_equal"]),
        "difference": difference(model["versus"]["equal"]),
        "gain over equal": f"{max(0.0, 100 * model['gain_over_equal']['mean']):.1f}",
        "noise": f"{100 * model['training_noise']['mean']:.1f}",
        "regret": f"{100 * model['regret']:.1f}",
    }
    if "top" in others:
        found["top"] = percent(others["top"]["mean"])
    if "best" in others:
        found["best"] = percent(others["best"]["mean"])
        found["best probability"] = chance(others["best"]["probability_at_least_equal"])
        found["best difference"] = difference(model["gain_over_equal"])
    for name, amount in data["allocation"].items():
        found[f"{name} collect"] = str(amount)
    for curve in model["curves"]:
        found[f"{curve['factor']} gain"] = points(curve["gain"]["mean"])
        found[f"{curve['factor']} range"] = f"{points(curve['gain']['low'])} to {points(curve['gain']['high'])}"
        found[f"{curve['factor']} best"] = percent(curve["best"], 0)
        found[f"{curve['factor']} end"] = percent(curve["overall"]["mean"][-1])
        found[f"{curve['factor']} success now"] = percent(curve["now"]["mean"])
    for curve in data["curves"]:
        label = "+".join(curve["combination"])
        found[f"{label} curve now"], found[f"{label} curve then"] = percent(curve["now"]), percent(curve["predicted"])
        found[f"{label} curve gain"] = points(curve["predicted"] - curve["now"])
    return {name: {value} for name, value in found.items()}


def of_tables(text: str, fitted: str) -> Numbers:
    """What `fsc recommend` and `fsc fit` print."""
    found = sentences(text)
    header = next(line for line in text.splitlines() if line.startswith("factor"))
    own = "success now" in header
    for line in text.splitlines():
        cells = line.split()
        if cells and cells[0] in NAMES and len(cells) == 5 + own:
            name = cells[0]
            found[f"{name} collect"] = {cells[2].replace("–", "0").lstrip("+")}
            if own and cells[3] != "–":
                found[f"{name} success now"] = {cells[3]}
            found[f"{name} gain"], found[f"{name} best"] = {cells[-2]}, {cells[-1]}
    for line in fitted.splitlines():
        cells = line.split()
        if len(cells) == 7 and cells[-1].endswith("%"):
            found[f"{cells[0]} curve now"], found[f"{cells[0]} curve then"] = {cells[3]}, {cells[4]}
            found[f"{cells[0]} curve gain"], found[f"{cells[0]} curve best"] = {cells[5]}, {cells[6]}
    return found


def of_report(page: str, spec: StudySpec) -> Numbers:
    """What the report prints: its sentences, its table of strategies, and its cards with their pictures."""
    text = html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))
    found = sentences(re.sub(r"\s+", " ", text))
    words = {name.replace("_", " "): name for name in spec.names}
    row = re.search(r'<tr><th scope="row">auto \(recommended\)</th>(.*?)</tr>', page)
    assert row is not None
    predicted, _, versus, likely, _ = re.findall(r"<td[^>]*>(.*?)</td>", row[1])
    found.setdefault("predicted", set()).add(predicted)
    if versus != "–":
        found.setdefault("difference", set()).add(versus.replace(" (", " points ("))
        found.setdefault("probability", set()).add(likely)
    allocation = page[page.index('<section id="allocation"') : page.index('<section id="model"')]
    for name, amount in re.findall(r'<th scope="row">([^<]+)</th>.*?class="amount">(\d+)<', allocation, re.DOTALL):
        found[f"{words[name]} collect"] = {amount}
    for card in re.findall(r'<figure class="card">(.*?)</figure>', page, re.DOTALL):
        title = re.search(r"</span>([^<]+)</h3>", card)
        gain, best = re.search(r'class="gain">([^<]+?)(?: points)?<', card), re.search(r"P\(best[^)]*\) (\d+%)", card)
        assert title is not None
        assert gain is not None
        assert best is not None
        label = "+".join(words[part] for part in title[1].split(" + "))
        drawn = re.findall(r">\s*(\d+\.\d%)\s*</text>", card)
        if "if the whole budget goes here" in card:
            found[f"{label} gain"], found[f"{label} best"] = {gain[1]}, {best[1]}
            found[f"{label} range"] = set(re.findall(r"([+−]?\d+\.\d to [+−]?\d+\.\d) \(95% interval\)", card))
            found[f"{label} end"] = set(drawn)
            continue
        now = re.search(r"(?:at |)(\d+\.\d%)(?: → (\d+\.\d%))?</span>", card)
        assert now is not None
        found[f"{label} curve best"], found[f"{label} curve now"] = {best[1]}, {now[1]}
        found[f"{label} curve then"] = {now[2] or now[1], *drawn}
        found[f"{label} curve gain"] = {"0.0" if gain[1] == "flat" else gain[1]}
    return found


def of_dashboard(content: dict[str, Any], spec: StudySpec) -> Numbers:
    """What the Curves page is given, and what it writes into its pictures."""
    found = sentences(f"{content['why']} {content['rule']}")
    words = {name.replace("_", " "): name for name in spec.names}
    for row in content["allocation"]:
        found[f"{words[row['factor']]} collect"] = {str(row["amount"])}
    for card in content["factors"]["curves"]:
        name = words[card["label"]]
        best, span = re.search(r"\d+%", card["note"]), re.search(r"\((.*)\)", card["sub"])
        assert best is not None
        assert span is not None
        found[f"{name} gain"], found[f"{name} best"], found[f"{name} range"] = {card["gain"]}, {best[0]}, {span[1]}
        found[f"{name} end"] = {percent(card["line"][-1][1])}
    for card in content["curves"]:
        label = "+".join(words[part] for part in card["label"].split(" + "))
        shown, best = re.findall(r"\d+\.\d%", card["sub"]), re.search(r"P\(best\) (\d+%)", card["note"])
        assert best is not None
        found[f"{label} curve now"], found[f"{label} curve best"] = {shown[0]}, {best[1]}
        found[f"{label} curve then"] = {shown[-1], percent(card["line"][-1][1])}
        found[f"{label} curve gain"] = {"0.0" if card["flat"] else card["gain"]}
    return found


class Case(NamedTuple):
    """A small study, what each factor's demonstrations are worth, and the success with all of them."""

    spec: StudySpec
    steep: dict[str, float]
    full: float
    trials: int
    per_factor: bool
    budget: int


@st.composite
def studies(draw: st.DrawFn) -> Case:
    count = draw(st.integers(2, 4))
    construction = draw(st.sampled_from(["one", "group"]))
    spec = StudySpec(dict.fromkeys(NAMES[:count], 30), construction=construction, points=3, name="story")
    steep = {name: draw(st.sampled_from([0.0, 0.02, 0.1, 0.25])) for name in spec.names}
    full = draw(st.sampled_from([0.3, 0.62, 0.9]))
    trials, budget = draw(st.sampled_from([10, 80, 400])), draw(st.sampled_from([7, 100]))
    return Case(spec, steep, full, trials, draw(st.booleans()), budget)


def make(folder: Path, case: Case) -> None:
    """A study in which the chance of success falls where demonstrations are missing."""
    spec, steep, full, trials, per_factor, _ = case
    write_study(spec, folder / "study.yaml")
    with Study.create(spec, folder / "study.db") as study:
        while runs := study.ask():
            for run in runs:
                chance_of = full - sum(steep[name] * (1 - run.demos[name] / 30) for name in spec.names)
                good = round(max(0.0, chance_of) * trials)
                told = []
                for name in spec.names:
                    factor = (name,) if per_factor else ("*",)
                    told += [Trial(f"{name}/{k}", float(k < good), factor) for k in range(trials)]
                study.tell(run.id, told)


@pytest.mark.slow
@settings(
    max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)  # an example takes seconds: a failure is shown as it was found
@given(case=studies())
def test_every_number_in_two_views_is_the_same(case: Case) -> None:
    spec, budget = case.spec, case.budget
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, case)
        asked = ("--budget", str(budget))
        answers = [run_fsc("recommend", folder, *asked, *more) for more in ((), ("--json",))]
        fitted, written = run_fsc("fit", folder, *asked), run_fsc("report", folder, *asked)
        assert [answer.returncode for answer in (*answers, fitted, written)] == [0, 0, 0, 0]
        with Study.open(folder / "study.db") as study, client_of(study) as client:
            content = client.get(f"/curves.json?budget={budget}").json()
        views = {
            "command line": of_tables(answers[0].stdout, fitted.stdout),
            "JSON": of_json(json.loads(answers[1].stdout)),
            "report": of_report((folder / "report.html").read_text(encoding="utf-8"), spec),
            "dashboard": of_dashboard(content, spec),
        }
    names = {name for numbers in views.values() for name in numbers}
    shared = {name: {view: numbers[name] for view, numbers in views.items() if name in numbers} for name in names}
    for name, by_view in shared.items():
        assert len({value for values in by_view.values() for value in values}) == 1, (name, by_view)
    everywhere = {name for name, by_view in shared.items() if len(by_view) == len(views)}
    assert everywhere >= {"predicted", "noise", "regret"}
    assert "gain over equal" in everywhere or shared["gain over equal"]["JSON"] == {"0.0"}
    for name in spec.names:
        assert everywhere >= {f"{name} collect", f"{name} gain", f"{name} best"}
    assert everywhere & {"difference", "best difference"} or "This is an equal split." in answers[0].stdout
    assert sum(len(by_view) > 2 for by_view in shared.values()) >= 10
