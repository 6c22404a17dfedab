"""Logging: level and format; a message that is not shown costs no import."""

from __future__ import annotations

import json

import pytest

from pto_core import log


@pytest.fixture(autouse=True)
def restored():
    yield
    log.configure({"log_level": "warn", "log_format": "text"})


def shown(capsys, level: str, form: str = "text") -> str:
    log.configure({"log_level": level, "log_format": form})
    logger = log.get("pto_core.somewhere").bind(case="small")
    logger.error("cache is full", free=3)
    logger.warning("compiler is slow")
    logger.info("kernel compiled", path="/x y")
    logger.debug("cache hit")
    out, err = capsys.readouterr()
    assert out == ""
    return err


EVENTS = ["cache is full", "compiler is slow", "kernel compiled", "cache hit"]


@pytest.mark.parametrize(("level", "count"), [("error", 1), ("warn", 2), ("info", 3), ("debug", 4)])
def test_the_log_level_determines_the_shown_messages(capsys, level, count):
    text = shown(capsys, level)
    assert [event for event in EVENTS if event in text] == EVENTS[:count]
    assert len(text.splitlines()) == count


def test_text_has_the_fields_and_no_colours_outside_a_terminal(capsys):
    text = shown(capsys, "error")
    assert "pto_core.somewhere" in text
    assert "case=small" in text
    assert "free=3" in text
    assert "\x1b" not in text


def test_json_is_one_object_a_line(capsys):
    records = [json.loads(line) for line in shown(capsys, "debug", "json").splitlines()]
    assert [record["event"] for record in records] == EVENTS
    assert [record["level"] for record in records] == ["error", "warn", "info", "debug"]
    assert records[0]["free"] == 3
    assert {record["case"] for record in records} == {"small"}
    assert all("timestamp" in record for record in records)


@pytest.mark.parametrize("form", ["text", "json"])
def test_messages_for_the_user_keep_the_format_and_ignore_the_level(capsys, form):
    log.configure({"log_level": "error", "log_format": form})
    log.show("2 of 3\nlines", "warn")
    text = capsys.readouterr().err
    if form == "json":
        record = json.loads(text)
        assert (record["text"], record["level"]) == ("2 of 3\nlines", "warn")
    else:
        assert text == "2 of 3\nlines\n"


def test_structlog_is_imported_with_the_first_message_that_is_shown(site):
    program = (
        "from pto_core import log; logger = log.get('x'); logger.info('a');"
        "print('structlog' in sys.modules); logger.warning('b'); print('structlog' in sys.modules)"
    )
    assert site.run(program).stdout == "False\nTrue\n"
