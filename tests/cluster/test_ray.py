"""Workers on a real Ray cluster of three nodes; two of them die."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import (
    LEASE,
    ROOT,
    Rows,
    counting,
    fsc,
    measuring,
    outcomes,
    required,
    rows,
    tabletop,
    training,
    until,
)

from factored_scaling.errors import RunFailed
from factored_scaling.store.documents import JOBS
from factored_scaling.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ON = ("--on", "ray", "--lease", LEASE)
NODE = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A cluster whose head runs no tasks, so that it outlives the nodes that do."""
    if os.environ.get("FSC_SKIP_POSTGRES") == "1":
        pytest.skip("the fast tier starts no servers")
    before = {name: os.environ.get(name) for name in ("RAY_ADDRESS", "PYTHONPATH")}
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    try:
        from ray.cluster_utils import Cluster

        cluster: Any = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "num_gpus": 0})
    except Exception as error:  # whatever keeps it from starting
        required(f"Ray does not start: {error}")
    os.environ["RAY_ADDRESS"] = cluster.address
    yield cluster
    cluster.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def test_nodes_die_in_mid_training_and_in_mid_evaluation(tmp_path: Path, ray_cluster: Any, tabletop_rows: Rows) -> None:
    nodes = [ray_cluster.add_node(**NODE) for _ in range(3)]
    with tabletop(tmp_path) as study:
        # two workers share a GPU in name; there is none
        fsc(
            "run",
            tmp_path,
            "--on",
            "ray",
            "--workers",
            "3",
            "--gpus",
            "0.5",
            "--device",
            "cpu",
            "--lease",
            LEASE,
            "--detach",
        )
        run = until(training(study, tmp_path), "a run is trained")
        assert str(run.worker).startswith("ray:")
        assert f"job: {tmp_path}/jobs/ray-" in fsc("runs", tmp_path)
        _kill(ray_cluster, nodes, run.worker)
        run = until(measuring(study), "a run is measured")
        _kill(ray_cluster, nodes, run.worker)
        assert len(nodes) == 1
        until(lambda: all(run.state == "done" for run in study.runs()) or None, "all runs are done", 200)
        assert rows(study) == tabletop_rows
        assert outcomes(study).count("lost") >= 2
    ray_cluster.remove_node(nodes[0])


def test_evaluators_measure_what_others_train_and_one_loses_its_node(
    tmp_path: Path, ray_cluster: Any, tabletop_rows: Rows
) -> None:
    nodes = [ray_cluster.add_node(**NODE) for _ in range(2)]
    # workers that train want a resource of their own, which evaluators are not given
    nodes.append(ray_cluster.add_node(**NODE, resources={"trains": 1}))
    with tabletop(tmp_path) as study:
        split = ("--resources", "trains=1", "--evaluators", "2", "--evaluator-resources", "trains=0")
        fsc("run", tmp_path, *ON, "--workers", "1", "--gpus", "1", "--device", "cpu", *split, "--detach")
        run = until(measuring(study), "a run is measured")
        (folder,) = (tmp_path / "jobs").iterdir()
        trainer = study.store.attempts(run.id)[0].worker
        assert str(trainer).partition(" ")[0] != str(run.worker).partition(" ")[0]
        _kill(ray_cluster, nodes, run.worker)
        until(lambda: (folder / "trained").exists() or None, "those that train end")
        until(lambda: all(run.state == "done" for run in study.runs()) or None, "all runs are done", 200)
        assert rows(study) == tabletop_rows
        assert "lost" in outcomes(study)
        assert {study.store.attempts(run.id)[0].worker for run in study.runs()} == {trainer}
        until(lambda: "no run is left" in (folder / "driver.log").read_text() or None, "the evaluators end")
    for node in nodes:
        ray_cluster.remove_node(node)


def _gone(path: Path) -> bool:
    return not path.exists()


def _kill(cluster: Any, nodes: list[Any], worker: str | None) -> None:
    """Kill the node that a worker runs on, and the worker: on another machine it would go with the node."""
    pid = int(str(worker).rpartition(":")[2])
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in nodes}
    ancestor = pid
    while ancestor not in raylets:
        ancestor = int(Path(f"/proc/{ancestor}/stat").read_text().rpartition(")")[2].split()[1])
    node = raylets[ancestor]
    os.kill(pid, 9)
    cluster.remove_node(node, allow_graceful=False)
    nodes.remove(node)


def test_tasks_are_stopped_and_go_on_and_a_cluster_that_is_not_there_is_an_error(
    tmp_path: Path, ray_cluster: Any, counting_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_cluster.add_node(**NODE)
    with counting(tmp_path, updates=10_000) as study:
        for host in ("this", "another"):  # the driver gets a signal, or finds the request in the database
            # three tasks for one core, and a heartbeat that comes too late: only the driver can end them
            fsc("run", tmp_path, "--on", "ray", "--workers", "3", "--lease", "100", "--detach")
            run = until(training(study, tmp_path), "a run is trained")
            submission = study.store.documents(study.id, JOBS)[-1]
            if host == "another":
                study.store.put_document(study.id, JOBS, submission.key, {**submission.body, "host": host})
            assert "cancelled: ray" in fsc("stop", tmp_path, "--cancel")
            driver = Path("/proc", submission.body["ids"][0])
            until(partial(_gone, driver), "the driver ends")
            assert [run.state for run in study.runs()] == ["pending"] * 3
            assert {one.outcome for one in study.store.attempts(run.id)} == {"released"}
        for run in study.runs():  # the rest would take a quarter of an hour
            point = tmp_path / "runs" / run.digest / "resume-000000000.json"
            point.parent.mkdir(exist_ok=True)
            point.write_text('{"step": 9990}')
        monkeypatch.setenv("RAY_ADDRESS", "nowhere")
        with pytest.raises(RunFailed, match="ended with exit code 1: Ray cannot be reached at nowhere"):
            study.run(executor="ray", workers=1)
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
        with pytest.raises(
            RunFailed, match=r"Ray cannot be reached at 127\.0\.0\.1:9 \(Connection refused\); `ray status`"
        ):
            study.run(executor="ray", workers=1, detach=True)
        monkeypatch.undo()
        settings = {"kind": "ray", "workers": 2, "cpus": 0.5}
        with Study.open(tmp_path / "study.db", settings=study.spec.changed(executor=settings)) as declared:
            summary = declared.run(lease_seconds=4.0)
        assert len(summary.done) == 3
        assert rows(study) == counting_rows
        assert all(str(run.worker).startswith("ray:") for run in study.runs())
