"""Putting an object right is given up for a while where somebody undoes it again and again, or where it is in vain."""

from __future__ import annotations

from datetime import timedelta

import pytest

from functions.repairs import AT_MOST, WITHIN, Repairs
from tests.support import EPOCH

SECOND = timedelta(seconds=1)


def put_right(repairs: Repairs, times: int, uid: str = "a", wanted: str = "w") -> None:
    """Notes so many repairs, a second apart from EPOCH on."""
    for each in range(times):
        repairs.note(uid, wanted, EPOCH + each * SECOND)


@pytest.mark.parametrize("times", range(AT_MOST + 2))
def test_a_few_times_in_a_while_and_no_more(times: int) -> None:
    repairs = Repairs()
    put_right(repairs, times)
    assert repairs.is_fought("a", "w", EPOCH + times * SECOND) is (times >= AT_MOST)


def test_after_a_while_it_is_tried_again() -> None:
    repairs = Repairs()
    put_right(repairs, AT_MOST)
    end = EPOCH + timedelta(seconds=WITHIN)
    assert repairs.is_fought("a", "w", end - SECOND)
    assert not repairs.is_fought("a", "w", end)
    repairs.note("a", "w", end)
    assert repairs.is_fought("a", "w", end)  # the last ones are still as many within the time
    assert not repairs.is_fought("a", "w", end + timedelta(seconds=WITHIN))


def test_rare_repairs_are_no_fight() -> None:
    repairs = Repairs()
    for each in range(20):
        moment = EPOCH + each * timedelta(seconds=WITHIN / 2)
        assert not repairs.is_fought("a", "w", moment)
        repairs.note("a", "w", moment)


def test_each_object_has_a_history_of_its_own() -> None:
    repairs = Repairs()
    put_right(repairs, AT_MOST)
    assert not repairs.is_fought("b", "w", EPOCH)


def test_what_should_be_is_another_thing_now() -> None:
    repairs = Repairs()
    put_right(repairs, AT_MOST)
    assert not repairs.is_fought("a", "another", EPOCH)
    repairs.note("a", "another", EPOCH)
    assert not repairs.is_fought("a", "another", EPOCH)
    assert not repairs.is_fought("a", "w", EPOCH)


def test_what_was_in_vain_is_not_tried_again_in_the_same_state() -> None:
    repairs = Repairs()
    assert not repairs.was_fruitless("a", "w", "state")
    repairs.note("a", "w", EPOCH, "state")
    assert repairs.was_fruitless("a", "w", "state")
    assert not repairs.was_fruitless("a", "w", "another state")
    assert not repairs.was_fruitless("a", "another", "state")
    assert not repairs.was_fruitless("b", "w", "state")
    repairs.note("a", "w", EPOCH)
    assert not repairs.was_fruitless("a", "w", "state")


def test_what_the_api_server_itself_makes_of_it_is_harmless() -> None:
    repairs = Repairs()
    repairs.note("a", "w", EPOCH, "state", harmless=True)
    assert repairs.was_harmless("a", "w", "state")
    assert not repairs.was_harmless("a", "w", "another state")
    assert not repairs.was_harmless("a", "another", "state")
    repairs.note("a", "w", EPOCH, "state")
    assert not repairs.was_harmless("a", "w", "state")


def test_objects_that_are_long_gone_are_forgotten() -> None:
    repairs = Repairs()
    put_right(repairs, 1, "old")
    for each in range(100):
        put_right(repairs, 1, f"uid-{each}")
    repairs.note("new", "w", EPOCH + timedelta(hours=1))
    assert set(repairs._histories) == {"new"}
