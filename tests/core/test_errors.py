"""Errors say what, where and what to do, in one line."""

from __future__ import annotations

import copy
import pickle

import pytest

from factored_scaling import FscError, InvalidInput, errors
from factored_scaling.errors import NotEnoughData, UnknownFactor, suggest

TREE = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, FscError)]


def test_a_message_is_place_what_and_hint() -> None:
    assert str(FscError("too late")) == "too late"
    assert str(FscError("too late", where="row 3")) == "row 3: too late"
    assert str(FscError("too late", where="row 3", hint="hurry")) == "row 3: too late; hurry"


@pytest.mark.parametrize("kind", TREE)
def test_every_error_can_be_placed(kind: type[FscError]) -> None:
    error = kind("tabel", where="row 3", hint="hurry")
    placed = error.at("results.csv")
    assert type(placed) is kind
    assert placed.where == "results.csv: row 3"
    assert (placed.what, placed.hint) == (error.what, error.hint)
    assert placed.exit_code == kind.exit_code


# Exception pickles its positional arguments, but __init__ takes only one of them; a worker process that raises one of
# these errors breaks the pool instead of reporting it.
@pytest.mark.parametrize("kind", TREE)
def test_every_error_can_be_copied_and_sent_to_another_process(kind: type[FscError]) -> None:
    error = kind("tabel", where="row 3", hint="hurry")
    assert str(copy.copy(error)) == str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)


def test_bad_input_exits_with_two_and_other_trouble_with_one() -> None:
    assert InvalidInput.exit_code == UnknownFactor.exit_code == NotEnoughData.exit_code == 2
    assert errors.StoreError.exit_code == errors.RunFailed.exit_code == 1
    assert all(kind.exit_code in (1, 2) for kind in TREE)


def test_the_nearest_name_is_suggested_else_all_are_listed() -> None:
    assert suggest("tabel", ["lighting", "table"]) == "did you mean table?"
    assert suggest("zzz", ["lighting", "table"]) == "known: lighting, table"
    assert suggest("zzz", []) == ""
    assert str(UnknownFactor("tabel", ["table"], where="row 1")) == "row 1: unknown factor 'tabel'; did you mean table?"
