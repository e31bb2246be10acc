"""`fsc recommend --proxy`: stand-in scores beside trials, or instead of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Answer

from factored_scaling import Study, StudySpec
from factored_scaling.core.proxy import KS
from factored_scaling.store.documents import SIMILARITY

Fsc = Callable[..., Answer]
SPEC = StudySpec({"camera": 6, "light": 6}, construction="one", points=3)


@pytest.fixture
def similar(tmp_path: Path) -> Path:
    """A study whose workers kept similarities, which rise with demos of light; no trial is scored."""
    (tmp_path / "study.yaml").write_text(json.dumps(SPEC.to_mapping()))  # JSON is YAML too
    with Study.create(SPEC, tmp_path / "study.db") as study:
        for run in study.runs():
            near = [0.5 + 0.05 * run.demos["light"], 0.5]
            body = {"nearest": {str(k): near for k in KS}, "factors": ["light", "camera"]}
            study.store.put_document(study.id, SIMILARITY, run.digest, body)
    return tmp_path


def test_power_law_curves_are_fitted_to_stand_in_scores(fsc: Fsc, similar: Path) -> None:
    rule = ("--fit", "power-law", "--strategy", "top")
    answer = fsc("recommend", similar, "--budget", "10", "--proxy", "1", *rule)
    assert "Collect next (top, proxy k = 1)" in answer.stdout
    answer = fsc("recommend", similar, "--budget", "10", "--proxy", "1", *rule, "--json")
    assert json.loads(answer.stdout)["allocation"] == {"camera": 0, "light": 10}


def test_the_response_model_weighs_proxy_scores_beside_trials(fsc: Fsc, similar: Path) -> None:
    alone = json.loads(fsc("recommend", similar, "--budget", "10", "--proxy", "5", "--json").stdout)
    assert alone["allocation"] == {"camera": 5, "light": 5}  # a proxy alone leaves an equal split
    assert alone["response_model"]["alternatives"]["best"]["allocation"]["light"] > 5
    assert "no trial was scored: predicted success comes from the prior" in alone["warnings"][0]
    text = fsc("recommend", similar, "--budget", "10", "--proxy", "5").stdout
    assert "Recommending an equal split: the best alternative (" in text
    assert "fsc next" not in text, "it knows no proxy"
    for run in range(1, 6):
        assert fsc("record", similar, str(run), *"1110", "--done").returncode == 0
    both = json.loads(fsc("recommend", similar, "--budget", "10", "--proxy", "5", "--json").stdout)
    assert not any("no trial was scored" in text for text in both["warnings"])
    assert both["response_model"]["policies"] == 5


def test_stand_in_scores_are_in_the_record(fsc: Fsc, similar: Path) -> None:
    (similar / "results.csv").write_text("combination,n,score\nlight,0,0.4\n")
    answer = fsc("recommend", similar, similar / "results.csv", "--budget", "10", "--proxy", "1")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "fsc: --proxy: proxy scores come from the record, not from a file\n"
    assert "k must be 1, 5 or 10, not 3" in fsc("recommend", similar, "--budget", "10", "--proxy", "3").stderr
