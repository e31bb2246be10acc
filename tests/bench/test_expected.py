"""The table of regrets to expect: complete, between its measured points, and falling with policies."""

from __future__ import annotations

import pytest

from factored_scaling.bench.expected import expected_equal, expected_regret, regime_for, table


@pytest.mark.parametrize("regime", ["simulation", "real"])
def test_measured_numbers_come_back_and_others_lie_between(regime: str) -> None:
    for construction, sides in table()["regret"][regime].items():
        for count, rows in sides.items():
            for policies, regret, error in rows:
                assert expected_regret(construction, int(count), policies, regime) == pytest.approx(regret)
                assert 0 < error < 0.1
            first, second = rows[0], rows[1]
            middle = expected_regret(construction, int(count), (first[0] + second[0]) // 2, regime)
            assert middle is not None
            assert min(first[1], second[1]) - 1e-9 <= middle <= max(first[1], second[1]) + 1e-9


def test_more_policies_and_more_trials_are_expected_to_help() -> None:
    values = {
        (regime, policies): expected_regret("screen", 8, policies, regime)
        for regime in ("simulation", "real")
        for policies in (1, 13)
    }
    assert values["simulation", 13] < values["simulation", 1] < expected_equal(8)  # type: ignore[operator]
    assert values["real", 13] < values["real", 1]  # type: ignore[operator]
    assert values["simulation", 13] < values["real", 13]  # type: ignore[operator]


def test_beyond_the_table_the_nearest_counts() -> None:
    assert expected_regret("screen", 3, 6, "real") == expected_regret("screen", 5, 6, "real")
    assert expected_regret("screen", 20, 500, "real") == expected_regret("screen", 8, 13, "real")
    between = expected_regret("screen", 6, 6, "real")
    ends = sorted(expected_regret("screen", count, 6, "real") or 0 for count in (5, 8))
    assert between is not None
    assert ends[0] <= between <= ends[1]
    assert expected_regret("pair", 5, 6, "real") is None
    assert (regime_for(None), regime_for(18), regime_for(600)) == ("real", "real", "simulation")
