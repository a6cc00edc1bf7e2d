"""One holder and one candidate on one line of true time: trust and takeover never meet."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from wheelsched.core.lease import LeaseTerms, LeaseWatch, Observation, Trust

TERMS = LeaseTerms(ttl_us=5_000, margin_us=500)

delays = st.integers(0, 3_000)


class Renewal(Struct, frozen=True):
    """Three instants of true time; an answer that is lost never comes."""

    sent: int
    executed: int
    answered: bool


@st.composite
def renewals(draw: st.DrawFn) -> list[Renewal]:
    made = [Renewal(0, 0, answered=True)]
    for pause in draw(st.lists(st.integers(1, 4_000), max_size=12)):
        sent = made[-1].executed + pause
        made.append(Renewal(sent, sent + draw(delays), answered=draw(st.booleans())))
    return made


@st.composite
def looks(draw: st.DrawFn, made: list[Renewal], database_clock_jump: int) -> list[Observation]:
    seen = []
    now = 0
    for pause in draw(st.lists(st.integers(1, 3_000), max_size=40)):
        sent = now + pause
        read = sent + draw(delays)
        now = read + draw(delays)
        executed = [renewal.executed for renewal in made if renewal.executed <= read]
        expires_at = executed[-1] + TERMS.ttl_us
        seen.append(
            Observation(
                renewals=len(executed),
                is_expired=expires_at < read + database_clock_jump,
                sent_us=sent,
                received_us=now,
            )
        )
    return seen


@given(renewals(), st.integers(-20_000, 20_000), st.data())
def test_when_a_candidate_takes_over_the_holder_has_stopped(
    made: list[Renewal], database_clock_jump: int, data: st.DataObject
) -> None:
    watch: LeaseWatch | None = None
    for look in data.draw(looks(made, database_clock_jump)):
        watch = watch.after(look, TERMS) if watch else LeaseWatch.begin(look)
        taken_at = look.received_us
        executed = [renewal for renewal in made if renewal.executed <= taken_at]
        # The statement that takes over asks again whether the row was renewed.
        if watch.may_take_over(TERMS) and len(executed) == look.renewals:
            trust = Trust()
            for renewal in executed:
                if renewal.answered:
                    trust = trust.renewed(renewal.sent, TERMS)
            assert not trust.holds_at(taken_at)
            return


@given(st.lists(st.integers(0, 100_000)), st.integers(0, 100_000))
def test_trust_is_that_of_the_latest_renewal_sent(sent: list[int], now: int) -> None:
    trust = Trust()
    for sent_us in sent:
        trust = trust.renewed(sent_us, TERMS)
    expected = any(now < sent_us + TERMS.ttl_us - TERMS.margin_us for sent_us in sent)
    assert trust.holds_at(now) == expected
