"""What a study.yaml says of values, trials that people score, and trainers."""

from __future__ import annotations

from tests.cli.corpus.kinds import GONE, Case, Reader, at, nested, raw

LEVELS = "scoring.rubric"
SCORING: dict[str, Case] = {
    "deep": Case(nested("scoring.conditions", 600), "nested too deep"),
    "scoring a text": Case(at("scoring", "success"), "scoring"),
    "scoring a list": Case(at("scoring", [1]), "scoring"),
    "unknown key": Case(at("scoring.rubrik", 1), "did you mean rubric?"),
    "unknown preset": Case(at("scoring.preset", "fold-towl"), "did you mean fold-towel?"),
    "preset a list": Case(at("scoring.preset", ["fold-towel"]), "scoring.preset"),
    "preset null": Case(at("scoring.preset", None), "scoring.preset"),
    "rubric unknown": Case(at(LEVELS, "sucess"), "did you mean success?"),
    "rubric null": Case(at(LEVELS, None), "expected a rubric's name or its levels"),
    "rubric an object": Case(at(LEVELS, {"score": 1}), "expected a rubric's name or its levels"),
    "rubric empty": Case(at(LEVELS, []), "2 to 12 levels"),
    "rubric of texts": Case(at(LEVELS, ["bad", "good"]), "expected a level"),
    "rubric too long": Case(at(LEVELS, [{"score": k / 20} for k in range(20)]), "2 to 12 levels"),
    "level null": Case(at(f"{LEVELS}.0", None), "expected a level"),
    "level's key": Case(at(f"{LEVELS}.0.colour", "red"), "unknown name 'colour'"),
    "level's score missing": Case(at(f"{LEVELS}.0.score", GONE), "must lie in [0, 1]"),
    "level's score above": Case(at(f"{LEVELS}.1.score", 100), "must lie in [0, 1]"),
    "level's score a text": Case(at(f"{LEVELS}.1.score", "1"), "must lie in [0, 1]"),
    "level's score NaN": Case(raw(f"{LEVELS}.1.score", ".nan"), "scoring: holds a value that is not plain data"),
    "level's score twice": Case(at(f"{LEVELS}.1.score", 0), "two levels have the score"),
    "level's name twice": Case(at(f"{LEVELS}.1.name", "no"), "two levels have the name"),
    "level's name a number": Case(at(f"{LEVELS}.1.name", 3), "expected a text"),
    "level's name blank": Case(at(f"{LEVELS}.1.name", " "), "expected a text"),
    "level's name long": Case(at(f"{LEVELS}.1.name", "x" * 25), "at most 24"),
    "level's meaning a list": Case(at(f"{LEVELS}.1.means", []), "expected a text"),
    "no level of 0": Case(at(f"{LEVELS}.0.score", 0.5), "no level has the score 0"),
    "conditions unknown": Case(at("scoring.conditions", "some"), "expected conditions"),
    "conditions null": Case(at("scoring.conditions", None), "expected conditions"),
    "conditions a number": Case(at("scoring.conditions", 3), "expected conditions"),
    "conditions empty": Case(at("scoring.conditions", []), "1 to 1000 conditions"),
    "conditions each": Case(at("scoring.conditions", "each"), "lists no test_values"),
    "condition a text": Case(at("scoring.conditions.0", "dim"), "expected a value for each varied factor"),
    "condition empty": Case(at("scoring.conditions.0", {}), "expected a value for each varied factor"),
    "condition unknown": Case(at("scoring.conditions.0", {"lihgting": "dim"}), "did you mean lighting?"),
    "condition a list": Case(at("scoring.conditions.0.lighting", ["dim"]), "scoring.conditions[0].lighting"),
    "condition null": Case(at("scoring.conditions.0.lighting", None), "scoring.conditions[0].lighting"),
    "condition twice": Case(at("scoring.conditions.1", {"lighting": "dim"}), "is listed twice"),
    "combinations besides": Case(at("scoring.combinations", 3), "for together only"),
    "repeats 0": Case(at("scoring.repeats", 0), "at least 1"),
    "repeats a part": Case(at("scoring.repeats", 1.5), "a whole number"),
    "repeats a text": Case(at("scoring.repeats", "2"), "a whole number"),
    "repeats a million": Case(at("scoring.repeats", 10**6), "at most 1000"),
    "step_limit 0": Case(at("scoring.step_limit", 0), "at least 1"),
    "step_limit a text": Case(at("scoring.step_limit", "600"), "a whole number"),
    "order unknown": Case(at("scoring.order", "random"), "scoring.order"),
    "order a list": Case(at("scoring.order", ["mixed"]), "scoring.order"),
}
VALUES: dict[str, Case] = {
    "values a text": Case(at("factors.camera_pose.values", "left"), "factors.camera_pose.values"),
    "values a number": Case(at("factors.camera_pose.values", 3), "factors.camera_pose.values"),
    "values of lists": Case(at("factors.camera_pose.values", [["left"]]), "factors.camera_pose.values"),
    "values of nulls": Case(at("factors.camera_pose.values", [None]), "factors.camera_pose.values"),
    "values twice": Case(at("factors.camera_pose.values", ["left", "left"]), "factors.camera_pose.values"),
    "range without end": Case(at("factors.camera_pose.values", {"from": 0}), "factors.camera_pose.values"),
    "range backwards": Case(at("factors.camera_pose.values", {"from": 2, "to": 1}), "factors.camera_pose.values"),
    "range of texts": Case(at("factors.camera_pose.values", {"from": "a", "to": "b"}), "factors.camera_pose.values"),
    "range with more": Case(
        at("factors.camera_pose.values", {"from": 0, "to": 1, "step": 1}), "factors.camera_pose.values"
    ),
    "range without bounds": Case(
        raw("factors.camera_pose.values", "{from: .nan, to: .inf}"), "factors.camera_pose.values"
    ),
    "test_values null": Case(at("factors.camera_pose.test_values", [None]), "factors.camera_pose.test_values"),
    "test_values a text": Case(at("factors.camera_pose.test_values", "far"), "factors.camera_pose.test_values"),
    "cost a list": Case(at("factors.camera_pose.cost", [1]), "factors.camera_pose.cost"),
    "cap negative": Case(at("factors.camera_pose.cap", -1), "factors.camera_pose.cap"),
    "dataset a number": Case(at("dataset", 3), "dataset"),
    "task a list": Case(at("task", ["tabletop/insert"]), "task"),
    "trainer a text": Case(at("trainer", "lerobot"), "trainer"),
    "policy a list": Case(at("policy", [1]), "policy"),
    "evaluation a text": Case(at("evaluation", "long"), "evaluation"),
    "policies 0": Case(at("policies", 0), "policies"),
    "first_seed negative": Case(at("first_seed", -1), "first_seed"),
}
TRAINER: dict[str, Case] = {
    "kind unknown": Case(at("trainer", {"kind": "lerobt"}), "did you mean lerobot?"),
    "kind a list": Case(at("trainer", {"kind": ["lerobot"]}), "trainer.kind"),
    "unknown key": Case(at("trainer.comand", "x"), "trainer"),
    "command missing": Case(at("trainer", {"evaluate": "true"}), "command"),
    "command empty": Case(at("trainer.command", ""), "trainer.command: is empty"),
    "command a number": Case(at("trainer.command", 3), "expected a command line"),
    "command of objects": Case(at("trainer.command", [{"a": 1}]), "expected a command line"),
    "command with a quote": Case(at("trainer.command", "python 'train.py"), "check the quotes"),
    "command with a placeholder": Case(at("trainer.command", "python {episode}"), "did you mean {episodes}?"),
    "words inside a word": Case(at("trainer.command", "python x{episodes*}"), "must stand alone"),
    "evaluate a number": Case(at("trainer.evaluate", 3), "expected a command line"),
    "environment a list": Case(at("trainer.environment", [1]), "trainer.environment"),
    "environment of numbers": Case(at("trainer.environment", {"A": [1]}), "trainer.environment"),
}

READERS: dict[str, Reader] = {
    "scoring": Reader("towel/study.yaml", ("sheet", "evaluate", "towel", "--out", "sheet.html"), SCORING),
    "values": Reader("towel/study.yaml", ("plan", "towel"), VALUES),
    "trainer": Reader("towel/study.yaml", ("run", "towel", "--workers", "1"), TRAINER),
}
