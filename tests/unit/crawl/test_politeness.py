"""A host's pace: the delay, doubled for each sign of strain, recovering slowly; clock and randomness are passed in."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawler.crawl.worker.politeness import MAX_BACKOFF, MIN_BACKOFF, RECOVERY, STRAINED, next_pace, retry_after
from crawler.frontier.hosts import RecentRequests
from crawler.web.page import Failure, Fetched
from crawler.web.reasons import look_up

GOOD = Fetched("https://a.example/", 200)


def failure(reason: str, wanted: float | None = None) -> Failure:
    return Failure("https://a.example/", reason, retry_after=wanted)


RESPONSES = st.one_of(
    st.just(GOOD),
    st.builds(failure, st.sampled_from([*STRAINED, "http-404", "dns"]), st.none() | st.floats(0, 10_000)),
)


def test_a_calm_host_is_requested_again_after_its_delay() -> None:
    assert next_pace(0.0, GOOD, 1.5, 100.0, dice=1.0).due == 101.5
    assert next_pace(0.0, GOOD, 0.0, 100.0, dice=1.0).due == 100.0


@pytest.mark.parametrize("reason", sorted(STRAINED))
def test_each_sign_of_strain_doubles_the_wait(reason: str) -> None:
    strain, waits = 0.0, []
    for _ in range(4):
        pace = next_pace(strain, failure(reason), 1.0, 0.0, dice=0.0)
        strain = pace.strain
        waits.append(pace.due)
    assert waits == [2.0, 4.0, 8.0, 16.0]
    assert look_up(reason).retry, "what strains a host passes"


@pytest.mark.parametrize("reason", ["http-404", "http-410", "robots", "tls", "wrong-type"])
def test_a_failure_that_is_final_is_no_sign_of_strain(reason: str) -> None:
    assert next_pace(0.0, failure(reason), 1.0, 0.0, dice=1.0).due == 1.0


@pytest.mark.parametrize("reason", ["dns", "http-500", "http-502", "cut-short"])
def test_a_host_that_fails_again_and_again_is_left_alone_for_longer_up_to_an_hour(reason: str) -> None:
    strain, waits = 0.0, []
    for _ in range(40):
        pace = next_pace(strain, failure(reason), 1.0, 0.0, dice=0.0)
        strain = pace.strain
        waits.append(pace.due)
    assert waits[:6] == [2**0.5, 2.0, 2**1.5, 4.0, 2**2.5, 8.0]
    assert waits[-1] == pytest.approx(MAX_BACKOFF)


def test_now_and_then_a_page_that_fails_does_not_slow_its_host_down_for_good() -> None:
    strain = 0.0
    for number in range(1000):
        response = failure("http-500") if number % 4 == 0 else GOOD
        strain = next_pace(strain, response, 1.0, 0.0, dice=0.0).strain
    assert strain <= 0.5


def test_a_host_that_recovered_is_requested_faster_after_its_first_good_response() -> None:
    strain = 0.0
    for _ in range(100):
        strain = next_pace(strain, failure("timeout"), 1.0, 0.0, dice=0.0).strain
    assert next_pace(strain, GOOD, 1.0, 0.0, dice=0.0).due < 0.9 * MAX_BACKOFF


def test_good_responses_bring_the_pace_back_slowly() -> None:
    strain, responses = 3.0, 0
    while strain:
        pace = next_pace(strain, GOOD, 1.0, 0.0, dice=0.0)
        assert pace.due < 2**strain
        strain, responses = pace.strain, responses + 1
    assert responses == 3 / RECOVERY
    assert next_pace(strain, GOOD, 1.0, 0.0, dice=0.0).due == 1.0


def test_a_host_without_a_delay_slows_down_too() -> None:
    assert next_pace(0.0, failure("http-429"), 0.0, 0.0, dice=0.0).due == 2 * MIN_BACKOFF


def test_retry_after_is_obeyed_but_never_shortens_the_wait() -> None:
    assert next_pace(0.0, failure("http-503", 120.0), 1.0, 0.0, dice=0.0).due == 120.0
    assert next_pace(5.0, failure("http-503", 3.0), 1.0, 0.0, dice=0.0).due == 64.0


@settings(deadline=None)
@given(st.lists(RESPONSES, max_size=40), st.floats(0, 5000), st.floats(0, 1))
@example([failure("timeout")] * 40, 406.9500483870964, 1.0)  # 2**log2(x) may be a little more than x
def test_no_history_gives_a_wait_below_the_delay_or_beyond_the_longest(
    responses: list[Fetched | Failure], delay: float, dice: float
) -> None:
    strain = 0.0
    for response in responses:
        pace = next_pace(strain, response, delay, 0.0, dice)
        strain = pace.strain
        assert 0 <= strain <= 16
        wanted = (response.retry_after or 0.0) if isinstance(response, Failure) else 0.0
        assert delay <= pace.due <= max(MAX_BACKOFF * 1.25, delay * 1.25, wanted)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_the_dice_only_ever_lengthen_a_wait_and_by_a_quarter_at_most(one: float, other: float) -> None:
    waits = [next_pace(2.0, failure("timeout"), 1.0, 0.0, dice).due for dice in sorted((one, other))]
    assert 8.0 <= waits[0] <= waits[1] <= 10.0


def test_the_wait_before_a_retry_doubles_with_each_attempt() -> None:
    assert [retry_after(attempt, 30.0, None, dice=0.0) for attempt in range(4)] == [30.0, 60.0, 120.0, 240.0]
    assert retry_after(0, 30.0, None, dice=1.0) == 37.5
    assert retry_after(0, 30.0, 3600.0, dice=0.0) == 3600.0


@given(st.lists(st.sampled_from("abcd")), st.integers(1, 10))
def test_a_hosts_share_is_its_part_of_the_last_requests(requested: list[str], most: int) -> None:
    lately = RecentRequests(most)
    for host in requested:
        lately.note(host)
    last = requested[-most:]
    for host in "abcde":
        assert lately.share(host) == (last.count(host) / len(last) if last else 0.0)
