"""Tables that people fill in: labels, lists of episodes, sheets of both kinds, outcomes."""

from __future__ import annotations

import random

from tests.cli.corpus.kinds import Case, Reader, again, cell, content, header, table, tables, texts

from factored_scaling.core.trial_queue import short_codes

OTHER = short_codes(1, random.Random("another sheet"))[0]  # a code with the right check, on no sheet of the desk
LABELS: dict[str, Case] = {
    **texts("labels.csv"),
    **tables("factor"),
    "no episode": Case(header("episode", "number"), "unknown column 'number'"),
    "episode and id": Case(header("value", "id"), "either episode or id"),
    "episode empty": Case(cell(1, "episode", ""), "row 1 (line 2), column episode"),
    "episode a text": Case(cell(1, "episode", "first"), "expected numbers of episodes"),
    "episode negative": Case(cell(1, "episode", "-1"), "expected numbers of episodes"),
    "episode a part": Case(cell(1, "episode", "0.5"), "expected numbers of episodes"),
    "episode not there": Case(cell(1, "episode", "9"), "no episode 9"),
    "episode beyond": Case(cell(1, "episode", "0-9"), "no episode 3"),
    "a trillion episodes": Case(cell(1, "episode", "0-9999999999999"), "column episode"),
    "a very long number": Case(cell(1, "episode", "9" * 5000), "column episode"),
    "a range backwards": Case(cell(1, "episode", "2-0"), "from a lower to a higher"),
    "foreign digits": Case(cell(1, "episode", "٣"), "expected numbers of episodes"),
    "factor empty": Case(cell(1, "factor", ""), "row 1 (line 2), column factor"),
    "factor of two words": Case(cell(1, "factor", "desk lamp"), "'desk lamp' cannot name a factor"),
    "factor *": Case(cell(1, "factor", "*"), "cannot name a factor"),
    "factor +": Case(cell(1, "factor", "lighting+"), "cannot name a factor"),
    "nominal and varied": Case(
        table(lambda rows: rows.append([rows[1][0], "nominal", ""])), "would be nominal and vary"
    ),
}
EPISODES: dict[str, Case] = {
    **texts("demos.csv"),
    **{name: case for name, case in tables("factor").items() if name != "JSON"},
    "JSON": Case(content('{"a": 1}'), "no column"),
    "no episode": Case(header("episode", "file"), "no column 'episode'"),
    "episode empty": Case(cell(2, "episode", ""), "row 2 (line 3), column episode: missing"),
    "episode twice": Case(again(1), "is listed twice"),
    "factor of two words": Case(cell(1, "factor", "desk lamp"), "cannot name a factor"),
    "factor +": Case(cell(1, "factor", "a+b"), "cannot name a factor"),
    "nothing varied": Case(content("episode,factor\na,nominal\nb,\n"), "no episode varies a factor"),
}
NEW_EPISODES: dict[str, Case] = {
    "unknown factor": Case(cell(1, "factor", "lihgting"), "did you mean lighting?"),
    "binary": Case(content(bytes(range(256))), "UTF-8"),
    "twice": Case(again(1), "is listed twice"),
    "a short row": Case(table(lambda rows: rows[2].pop()), "row 2 (line 3)"),
    "known already": Case(content("episode,factor\nlighting/0,lighting\n"), "no episode is new"),
    "known as another": Case(content("episode,factor\nlighting/0,camera_pose\n"), "varied lighting before"),
}
POOL: dict[str, Case] = {
    "binary": Case(content(bytes(range(256))), "UTF-8"),
    "no factor": Case(header("factor", "kind"), "no column 'factor'"),
    "twice": Case(again(1), "is listed twice"),
    "open quote": Case(lambda data: data + b'"', "not valid CSV"),
    "header alone": Case(lambda data: data.splitlines()[0], "no rows"),
}
SHEET: dict[str, Case] = {
    **texts("evaluate-1.csv"),
    **tables("code"),
    "no score": Case(header("score", "points"), "unknown column 'points'"),
    "code empty": Case(cell(1, "code", ""), "column code: missing"),
    "code unreadable": Case(cell(1, "code", "!!"), "is no code"),
    "code of another": Case(cell(1, "code", OTHER), f"there is no {OTHER} on this sheet"),
    "code twice": Case(again(1), "is already in row 1"),
    "policy of another": Case(cell(1, "policy", "Q0"), "have cells been moved?"),
    "score missing": Case(cell(1, "score", ""), "column score: missing"),
    "score a text": Case(cell(1, "score", "good"), "expected a score, not 'good'"),
    "score with a comma": Case(cell(1, "score", "0,25"), "write 0.25"),
    "score of no level": Case(cell(1, "score", "0.3"), "is no score of the rubric"),
    "score NaN": Case(cell(1, "score", "nan"), "is no score of the rubric"),
    "score endless": Case(cell(1, "score", "1e999"), "is no score of the rubric"),
    "score above 1": Case(cell(1, "score", "100"), "is no score of the rubric"),
    "ended otherwise": Case(cell(1, "ended", "tired"), "a reason to stop"),
    "ended and scored": Case(cell(1, "ended", "hazard"), "such a trial scores 0"),
    "skipped and ended": Case(
        table(lambda rows: rows[1].__setitem__(slice(-3, -1), ["skip", "hazard"])), "keep one of them"
    ),
    "a row gone": Case(table(lambda rows: rows.pop()), "trials are not on the sheet"),
}
LIST: dict[str, Case] = {
    **texts("collect-1.csv"),
    **tables("code"),
    "code unreadable": Case(cell(1, "code", "?"), "is no code"),
    "code twice": Case(again(1), "is already in row 1"),
    "a tick and more": Case(cell(1, "collected", "maybe"), "expected a tick or nothing"),
    "factor of another": Case(cell(1, "factor", "camera_pose"), "is a demo of lighting"),
    "an episode twice": Case(cell(2, "episode", "0"), "is already that of"),
    "unknown column": Case(header("note", "remark"), "unknown column 'remark'"),
}


def number(name: str, least: int = 0) -> dict[str, Case]:
    """What no whole number of a table may be."""
    wrong = {"text": "many", "negative": "-1", "part": "1.5", "exponent": "1e3", "empty": "", "endless": "9" * 6000}
    cases = {f"{name} {kind}": Case(cell(1, name, value), f"column {name}") for kind, value in wrong.items()}
    return cases | ({f"{name} 0": Case(cell(1, name, "0"), f"column {name}")} if least else {})


def share(name: str) -> dict[str, Case]:
    wrong = {"text": "high", "percent": "45%", "comma": "0,5", "above": "1.5", "NaN": "nan", "empty": ""}
    return {f"{name} {kind}": Case(cell(1, name, value), f"column {name}") for kind, value in wrong.items()}


OUTCOMES: dict[str, Case] = {
    **texts("outcomes.csv"),
    **tables("budget"),
    **number("budget"),
    **number("trials", least=1),
    **number("collect:lighting"),
    **share("score"),
    **share("score:lighting"),
    "predicted NaN": Case(cell(1, "predicted", "nan"), "column predicted"),
    "half a factor": Case(header("score:lighting", "score:light"), "no column"),
    "unknown column": Case(header("method", "rule"), "unknown column 'rule'"),
}

READERS: dict[str, Reader] = {
    "label --csv": Reader("labels.csv", ("label", "cubes", "--csv", "labels.csv", "--replace"), LABELS),
    "init --episodes": Reader("demos.csv", ("init", "new", "--episodes", "demos.csv"), EPISODES),
    "extend --episodes": Reader("demos.csv", ("extend", "lab", "--episodes", "demos.csv"), NEW_EPISODES),
    "recommend --pool": Reader(
        "demos.csv",
        ("recommend", "lab", "results.csv", "--budget", "1", "--strategy", "equal", "--pool", "demos.csv", "--save"),
        POOL,
    ),
    "sheet import, trials": Reader("evaluate-1.csv", ("sheet", "import", "lab", "evaluate-1.csv"), SHEET),
    "sheet import, demos": Reader("collect-1.csv", ("sheet", "import", "lab", "collect-1.csv"), LIST),
    "reproduce --rows": Reader("outcomes.csv", ("reproduce", "main", "--rows", "outcomes.csv"), OUTCOMES),
    "report --outcomes": Reader(
        "outcomes.csv",
        ("report", "lab", "results.csv", "--budget", "20", "--outcomes", "outcomes.csv", "--figures", "figures"),
        {name: OUTCOMES[name] for name in ("missing", "binary", "short row", "budget text", "score above")},
    ),
}
