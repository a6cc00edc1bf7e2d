"""Requests that come at once, on Postgres: none undoes or swallows another."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from tests.api import Api


async def test_backfills_at_once_fill_every_hole_of_each(api: Api) -> None:
    job = await api.create(schedule="* * * * * *", timezone="UTC")
    path = f"/jobs/{job['job_id']}/backfill"
    day = (datetime.now(UTC) - timedelta(days=2)).replace(hour=0, minute=0, second=0, microsecond=0)
    ranges = [
        {
            "since": (day + timedelta(hours=hour)).isoformat(),
            "until": (day + timedelta(hours=hour, minutes=10)).isoformat(),
        }
        for hour in range(6)
    ]
    keys: list[dict[str, str]] = [{"Idempotency-Key": uuid4().hex} for _ in ranges[:3]]
    made = await asyncio.gather(
        *(
            api.post(path, asked, headers=headers)
            for asked, headers in zip(ranges, [*keys, {}, {}, {}], strict=True)
        )
    )
    assert [(each.status, each.body["count"]) for each in made] == [(202, 600)] * 6
    assert len({run_id for each in made for run_id in each.body["run_ids"]}) == 6 * 600
    filled: Counter[str] = Counter()
    cursor = ""
    while True:
        page = (await api.get(f"/jobs/{job['job_id']}/runs?limit=1000{cursor}")).body
        filled.update(run["scheduled_at"][:13] for run in page["items"])
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert set(filled.values()) == {600}
    assert len(filled) == 6


async def test_a_resume_and_an_edit_at_once_leave_the_timer_where_the_schedule_says(
    api: Api,
) -> None:
    job = await api.create(schedule="0 0 1 1 *", timezone="UTC")
    path = f"/jobs/{job['job_id']}"
    for _ in range(20):
        await api.call("PATCH", path, {"schedule": "0 0 1 1 *"})
        await api.post(f"{path}/pause")
        await asyncio.gather(
            api.post(f"{path}/resume"), api.call("PATCH", path, {"schedule": "0 0 1 6 *"})
        )
        shown = (await api.get(path)).body
        ((_, due_us, _),) = await api.shard.timers.load(range(256), api.now_us + 10**14)
        assert shown["state"] == "active"
        assert datetime.fromisoformat(shown["next_run_at"]).timestamp() == due_us / 1_000_000
