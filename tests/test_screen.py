"""Progress of long commands in a log, where no terminal shows a bar."""

import itertools

from softknee.app import screen


def test_lines_now_and_then_where_there_is_no_terminal(capsys, monkeypatch):
    clock = itertools.count(0.0, 10.0)  # ten seconds from one look at it to the next
    monkeypatch.setattr("softknee.app.screen.time.monotonic", lambda: next(clock))
    with screen.progress_bar("training", total=4) as advance:
        for name in ("a", "b", "c", "d"):
            advance(name)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "training b: 2 of 4, 20 s so far, about 20 s left",
        "training d: 4 of 4, 40 s so far, about 0.0 s left",
    ]


def test_what_is_quick_is_quiet(capsys):
    with screen.progress_bar("training", total=2) as advance:
        advance("a")
        advance("b")
    assert capsys.readouterr() == ("", "")
