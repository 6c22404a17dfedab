"""Logging: level and format, and the configuration of the program."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import structlog

from pto_core import log


@pytest.fixture(autouse=True)
def restored():
    yield
    structlog.reset_defaults()
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


def test_a_repeated_warning_is_one_line_in_ten_seconds_with_a_count(capsys):
    now = [100.0]
    rare = log.RareWarnings("here", clock=lambda: now[0])
    for number in range(5):
        rare.add("refused key", key=number)
    rare.add("invalid request", client="ann")
    now[0] += 9.9
    rare.write()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "count=1 key=0" in line or "client=ann" in line] == lines
    assert len(lines) == 2
    now[0] += 0.1
    rare.write()
    rare.write()
    (line,) = capsys.readouterr().err.splitlines()
    assert "refused key" in line
    assert "count=4 key=4" in line


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


def test_structlog_is_imported_with_the_first_message(site):
    program = (
        "from pto_core import log; print('structlog' in sys.modules);"
        "log.get('x').warning('b'); print('structlog' in sys.modules)"
    )
    assert site.run(program).stdout == "False\nTrue\n"


def test_the_programs_configuration_has_effect(capsys):
    events: list[dict[str, object]] = []

    def keep(logger, method, event):
        events.append({**event, "method": method})
        raise structlog.DropEvent

    structlog.configure([structlog.contextvars.merge_contextvars, keep])
    log.get("pto_core.somewhere").bind(case="small").info("kernel compiled", path="x")
    assert events == [
        {
            "event": "kernel compiled",
            "logger": "pto_core.somewhere",
            "case": "small",
            "path": "x",
            "method": "info",
        }
    ]
    structlog.configure([keep], wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    log.get("pto_core.somewhere").warning("compiler is slow")
    assert len(events) == 1
    structlog.reset_defaults()
    log.get("pto_core.somewhere").warning("compiler is slow")
    assert "compiler is slow" in capsys.readouterr().err
    assert len(events) == 1


def test_a_stdlib_logger_gets_the_events_under_their_module(caplog):
    structlog.configure(
        [structlog.stdlib.add_logger_name, structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    log.get("pto_core.somewhere").warning("compiler is slow", seconds=3)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("pto_core.somewhere", "WARNING")
    assert (record.getMessage(), record.seconds) == ("compiler is slow", 3)


@pytest.mark.parametrize("form", ["text", "json"])
def test_context_variables_are_part_of_each_event(capsys, form):
    log.configure({"log_level": "warn", "log_format": form})
    with structlog.contextvars.bound_contextvars(request="r7"):
        log.get("pto_core.somewhere").warning("compiler is slow")
    log.get("pto_core.somewhere").warning("compiler is slow")
    first, second = capsys.readouterr().err.splitlines()
    assert "r7" in first
    assert "request" not in second


def test_an_exception_is_part_of_its_json_line(capsys):
    log.configure({"log_level": "warn", "log_format": "json"})
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.get("pto_core.somewhere").exception("cache is damaged", path=Path("x"))
    (line,) = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["path"]) == ("error", "x")
    assert "ValueError: two\nlines" in record["exception"]
