"""Every test that takes `store` or `address` runs twice: on an SQLite file and on a real PostgreSQL server."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec
from factored_scaling.store import Store

SCRIPT = Path(__file__).parents[2] / "scripts" / "postgres-for-tests"
_numbers = itertools.count()


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += seconds


@dataclass(frozen=True)
class Example:
    """A study in a store, with its runs planned and nothing done yet."""

    study: int
    spec: StudySpec
    dataset: Dataset
    runs: list[int]


@pytest.fixture(scope="session")
def postgres() -> str:
    """The URL of a running PostgreSQL server."""
    given = os.environ.get("FSC_TEST_POSTGRES")
    if given:
        return given
    if os.environ.get("FSC_SKIP_POSTGRES") == "1":
        pytest.skip("the fast tier starts no servers")
    try:
        started = subprocess.run([SCRIPT, "start"], capture_output=True, text=True, timeout=300, check=False)
        trouble = started.stderr if started.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = str(error)
    if trouble:
        required = os.environ.get("CI") == "true" or os.environ.get("FSC_REQUIRE_POSTGRES") == "1"
        (pytest.fail if required else pytest.skip)(f"PostgreSQL does not start: {trouble.strip()}")
    return started.stdout.strip()


@pytest.fixture(scope="session")
def postgres_engine(postgres: str) -> Iterator[Engine]:
    """Makes and drops the tests' schemas."""
    engine = create_engine(make_url(postgres).set(drivername="postgresql+psycopg"))
    yield engine
    engine.dispose()


@pytest.fixture
def postgres_address(postgres_engine: Engine) -> Iterator[str]:
    """The URL of an empty schema of its own."""
    schema = f"test_{os.getpid()}_{next(_numbers)}"
    with postgres_engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    url = postgres_engine.url.update_query_dict({"options": f"-csearch_path={schema}"})
    yield url.render_as_string(hide_password=False)
    with postgres_engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store may be made."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/study.db"
    found: str = request.getfixturevalue("postgres_address")
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(address: str, clock: Clock) -> Iterator[Store]:
    with Store.open(address, clock=clock) as opened:
        yield opened


@pytest.fixture
def example(store: Store) -> Example:
    """Seven runs in round 0 of a study of four factors."""
    return make_example(store)


@pytest.fixture
def example_at() -> Callable[[str], Example]:
    """Make the example at an address and leave it to others: the store is closed again."""

    def make(address: str) -> Example:
        with Store.open(address) as store:
            return make_example(store)

    return make


def make_example(store: Store, name: str = "example") -> Example:
    spec = StudySpec({"camera": 6, "light": 6, "table": 4, "object": 4}, construction="group", name=name)
    dataset = Dataset.of_sizes(spec.sizes)
    study = store.create_study(name, spec, dataset)
    return Example(study, spec, dataset, store.add_runs(study, 0, plan(spec, dataset)))
