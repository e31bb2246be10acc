"""Fifty clients that score at once, impatient ones that send twice among them: no trial lost, none doubled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import yaml
from tests.web.conftest import Served, towel_spec

from factored_scaling.scoring.session import Scoring
from factored_scaling.study import Study

CLIENTS, REPEATS = 50, 10


@pytest.mark.slow
def test_fifty_clients_at_once_lose_and_double_nothing(tmp_path: Path, serve: Callable[..., Served]) -> None:
    spec = towel_spec().changed(scoring={"preset": "fold-towel", "combinations": 2, "repeats": REPEATS})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(spec.to_mapping(), sort_keys=False))
    with Study.create(spec, tmp_path / "study.db") as study:
        scoring = Scoring.begin(study)
        served = serve(tmp_path, "--port", "0")
        scored: list[tuple[str, str]] = []
        troubles: list[str] = []
        begin = threading.Barrier(CLIENTS)

        def work(number: int) -> None:
            operator = f"operator {number}"
            with httpx2.Client(base_url=served.url, timeout=60) as client:
                begin.wait()
                trial = client.post("/score/1/next", json={"operator": operator}).json()["trial"]
                while trial is not None:
                    entry = {"operator": operator, "kind": "score", "code": trial["code"], "token": trial["code"]}
                    answers = [
                        client.post("/score/1/entry", json={**entry, "score": 0.5})
                        for _ in range(2 if number % 3 == 0 else 1)
                    ]
                    if any(answer.status_code != 200 for answer in answers):
                        troubles.append(str([answer.text for answer in answers]))
                        return
                    scored.append((trial["code"], operator))
                    trial = answers[-1].json()["trial"]

        threads = [threading.Thread(target=work, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not troubles
        every = scoring.trials()
        assert Counter(code for code, _ in scored) == Counter(trial.code for trial in every), "each handed out once"
        assert {(trial.code, trial.operator) for trial in every} == set(scored)
        assert all(trial.state == "scored" and trial.score == 0.5 for trial in every)
        assert len(scoring.history()) == len(every) == 5 * 2 * REPEATS
        assert len({operator for _, operator in scored}) > CLIENTS / 2, "they did come at once"
        assert scoring.close() == len(every)
