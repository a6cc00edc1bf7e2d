"""What a worker wrote down is read as it was written, whole lines only."""

from pathlib import Path

import msgspec
from tests.checker.quiet import arrival
from tests.faults.records import Records

LINE = msgspec.json.encode(
    {
        name: value
        for name, value in msgspec.to_builtins(arrival(10)).items()
        if not name.startswith(("answer", "reported"))
    }
)


def test_an_answer_is_to_the_arrivals_of_its_request(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"%b\n%b\n%b\n" % (LINE, LINE, LINE) + b'[1,2,"ok",17]\n')
    told = [(one.answer, one.answered_us) for one in Records(path).read()]
    assert told == [("none", None), ("ok", 17), ("ok", 17)]


def test_a_torn_end_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "records"
    records = Records(path)
    assert (records.count(), records.read()) == (0, [])
    path.write_bytes(LINE + b"\n" + LINE)
    assert (records.count(), len(records.read())) == (1, 1)
    with path.open("ab") as file:
        file.write(b"\n" + b'[0,1,"o')
    assert (records.count(), len(records.read())) == (2, 2)
    assert {one.answer for one in records.read()} == {"none"}


def test_each_word_is_counted_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(LINE + b"\n")
    records = Records(path)
    assert [records.count(b'"url":"http://worker.example"'), records.count(b"absent")] == [1, 0]
    with path.open("ab") as file:
        file.write(LINE + b"\n")
    assert [records.count(b'"url":"http://worker.example"'), records.count()] == [2, 2]
