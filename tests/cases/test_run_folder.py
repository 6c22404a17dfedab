"""``pto run --out DIR`` numbers the folders of the runs, and its page shows and links all files."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from pto_core.cli.run_folder import RunFolder
from pto_core.errors import UsageError
from pto_insight.dumps import TaskDump
from pto_insight.traces.files import read_trace

CASE = '<img src=x onerror="alert(1)">&amp;'
KERNEL = '<script>alert("2")</script>'.replace("/", "\u2215")
GOLDEN = f"""
import numpy as np

ALL_CASES = {{{CASE!r}: {{"bad": 0}}, "wrong": {{"bad": np.nan}}}}
__outputs__ = ["f"]

def generate_inputs(params):
    return [("bad", np.array([params["bad"]], np.float32)), ("f", np.zeros(6, np.float32))]

def compute_golden(tensors, params):
    tensors["f"][:] = np.arange(6)
    tensors["f"][2] = 0
"""
CONFIG = f"""
KERNELS = [
    dict(func_id=0, source="k.py", core_type="aiv", function_name="fill", name={KERNEL!r})
]
ORCHESTRATION = {{"source": "k.py", "function_name": "graph"}}
RUNTIME_CONFIG = {{"runtime": "tensormap_and_ringbuffer"}}
"""
PROGRAM = """
import os
import numpy as np
from pto_core import In, InOut, log

def fill(bad: In, out: InOut):
    print("a kernel says <b>")
    os.write(2, b"native code says so\\n")
    log.get("kernel").warning("late", seconds=2)
    out[:] = np.arange(6)
    out[2] = bad[0]

def graph(rt, bad: In, f: InOut):
    rt.submit(0, bad, f)
"""


class Page(HTMLParser):
    """The elements, links, anchors and texts of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[bytes] = []
        self.text = ""
        self.content = path.read_text()
        self.feed(self.content)
        self.files = {
            path.parent / unquote(link)
            for link in self.links
            if not urlsplit(link).scheme and not link.startswith("#")
        }

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.tags.add(tag)
        self.anchors.add(given.get("id", ""))
        if tag == "a":
            self.links.append(given["href"])
        if "src" in given:
            head, _, picture = given["src"].partition(",")
            assert head == "data:image/png;base64"
            self.pictures.append(base64.b64decode(picture))
        assert not [name for name in given if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def pixels(png: bytes) -> np.ndarray:
    """Return the lines of a picture that has one IDAT chunk and no filters."""
    assert png[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    width, height = struct.unpack(">II", png[16:24])
    at = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[at - 4 : at])
    assert struct.unpack(">I", png[at + 4 + length :][:4])[0] == zlib.crc32(
        png[at : at + 4 + length]
    )
    lines = np.frombuffer(zlib.decompress(png[at + 4 : at + 4 + length]), "u1")
    return lines.reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "case"
    (made / "kernels").mkdir(parents=True)
    (made / "golden.py").write_text(GOLDEN)
    (made / "kernels" / "kernel_config.py").write_text(CONFIG)
    (made / "kernels" / "k.py").write_text(PROGRAM)
    return made


def pto(*words: object) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("pto"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_links_every_file_of_two_runs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "all <runs>"
    files = ("--trace", "--stats", "--graph", "--dump", "--out", out)
    done = pto("run", folder, "--case", CASE, *files)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(f"{out}/index.html shows this run\n")
    written = (out / "1" / "log.txt").read_text()
    for line in ("a kernel says <b>", "native code says so", "late [kernel] seconds=2"):
        assert written.count(f"{line}\n") == 1
    first = Page(out / "index.html")
    (out / "1" / "log.txt").write_text("changed later")
    assert pto("run", folder, "--case", "wrong", "--no-explain", *files, "-q").returncode == 1
    page = Page(out / "index.html")
    assert {"1", "2"} == {path.name for path in out.iterdir() if path.is_dir()}
    assert page.files == {path for run in ("1", "2") for path in (out / run).rglob("*")}
    assert {link[1:] for link in page.links if link[0] == "#"} == {"run-1", "run-2"}
    assert {"run-1", "run-2"} <= page.anchors
    assert not page.tags & {"script", "link", "iframe"}
    for text in ("all <runs>", CASE, KERNEL, "a kernel says <b>", "got nan, expected 0.0"):
        assert text in page.text, text
    assert "1 task in " in page.text, "the summary of the trace"
    section = first.content[first.content.index("<!-- run 1") : first.content.index("<!-- end")]
    assert section in page.content, "the section of the first run is kept"
    assert page.text.index("Run 2: failed") < page.text.index("Run 1: passed")
    (picture, _) = map(pixels, page.pictures)
    assert picture.shape == (1, 6, 3)
    colours = picture[0].tolist()
    assert (colours[0], colours[2], colours[5]) == ([68, 1, 84], [255, 0, 0], [253, 231, 37])
    (out / "index.html").unlink()
    result = json.loads((out / "1" / "run.json").read_text())
    (out / "1" / "run.json").write_text(json.dumps(result | {"cases": [5]}))
    (out / "2" / "run.json").write_text(json.dumps(result | {"version": 0}))
    assert pto("run", folder, "--case", "wrong", "--stats", "--out", out).returncode == 1
    page = Page(out / "index.html")
    assert re.findall("Run .*", page.text) == [
        "Run 3: failed",
        "Run 2: not readable",
        "Run 1: not readable",
    ]
    assert len(read_trace(out).tasks) == 1, "the trace of run 2, because run 3 has none"
    for text in ("2/run.json is not the result of a run of this version", "its version is 0"):
        assert text in page.text


def test_another_page_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    done = pto("run", folder, "--stats", "--out", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}/index.html is another page" in done.stderr
    assert (tmp_path / "index.html").read_text() == "mine"
    assert not (tmp_path / "1").exists()


def test_a_result_is_shown_although_its_files_cannot_be_written(folder: Path) -> None:
    end = "    import shutil\n    shutil.rmtree('OUT')\n    open('OUT', 'w').close()\n"
    out = folder / "out"
    (folder / "golden.py").write_text(GOLDEN + end.replace("OUT", str(out)))
    done = pto("run", folder, "--flight-recorder", "--out", out, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["exit_code"], result["cases"][0]["passed"]) == (2, 2, True)
    assert f"{out} cannot be written: " in result["error"]["message"]
    out.unlink()
    done = pto("run", folder, "--graph", "--out", out)
    assert (done.returncode, ": passed" in done.stdout) == (2, True)
    for text in (f"pto: error: {out}/1 cannot be written: ", f"\n{out} cannot be written: "):
        assert re.search(f"{text}.*; use another", done.stderr), "the error of a graph has a note"


def test_a_dump_is_shown_as_a_page(folder: Path, tmp_path: Path) -> None:
    assert pto("run", folder, "--dump", "--out", tmp_path).returncode == 0
    (dumped,) = (tmp_path / "1").glob("*.run1")
    (file,) = dumped.iterdir()
    for path in (dumped, file):
        shown = tmp_path / "1" / "index.html"
        shown.write_text(pto("dump", "show", path, "--html").stdout)
        page = Page(shown)
        assert KERNEL in page.text
        assert "max 5" in page.text
        assert [pixels(picture).shape for picture in page.pictures] == [(1, 6, 3)]
    with pytest.raises(UsageError, match="another page"):
        RunFolder(shown.parent)
    shown.write_text(pto("dump", "diff", file, file, "--html").stdout)
    assert ("0 of 1 tasks differ" in Page(shown).text, Page(shown).pictures) == (True, [])
    one, changed = TaskDump.read(file), tmp_path / "changed.npz"
    replace(one, after={at: values + np.float32(6) for at, values in one.after.items()}).write(
        changed
    )
    done = pto("dump", "diff", file, changed, "--html")
    shown.write_text(done.stdout)
    page = Page(shown)
    assert (done.returncode, KERNEL in page.text, "img" in page.tags) == (1, True, True)
    assert (
        "1: f after: 6 of 6 elements; first at [0]: 0.0 -> 6.0; largest difference 6" in page.text
    )
    assert "    second  min 6  max 11  mean 8.16667\n" in page.text
    assert "1 of 2 arrays are equal" in page.text
    first, second, difference = map(pixels, page.pictures)
    assert first[0, 0].tolist() == [68, 1, 84], "the smallest value of both"
    assert (second[0, -1] == difference[0]).all(), "the largest value of both"
    for number in range(1, 26):
        shutil.copy(file, dumped / f"copy#{number}.npz")
    os.truncate(dumped / "copy#3.npz", 8 << 20)
    os.truncate(dumped / "copy#4.npz", (8 << 20) + 1)
    (tmp_path / "index.html").unlink()
    with RunFolder(tmp_path):
        pass
    page = Page(tmp_path / "index.html")
    assert len(page.pictures) == 22
    assert page.text.count("copy#3.npz is not the dump of a task") == 1
    assert page.text.count("The arrays are too large for this page.") == 1
    assert "and 2 more: pto dump show " in page.text


def test_an_interrupted_run_and_one_that_has_not_ended_are_listed(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    started = RunFolder(tmp_path)
    started.log("gr\u00fcn \udcff")
    assert (started.path / "log.txt").read_bytes() == b"gr\xc3\xbcn \\udcff\n"
    with pytest.raises(KeyboardInterrupt), RunFolder(tmp_path) as interrupted:
        raise KeyboardInterrupt("interrupted while compiling")
    assert (started.path.name, interrupted.path.name) == ("8", "9")
    result = json.loads((interrupted.path / "run.json").read_text())
    assert (result["exit_code"], result["error"]["exit_code"]) == (130, 130)
    page = Page(tmp_path / "index.html")
    assert "KeyboardInterrupt: interrupted while compiling" in page.text
    assert re.findall("Run .*", page.text) == ["Run 9: failed", "Run 8: has not ended"]
    with started:
        pass
    assert re.findall("Run .*", Page(tmp_path / "index.html").text)[1] == "Run 8: ended"
    for _ in range(20):
        with RunFolder(tmp_path):
            pass
    page = Page(tmp_path / "index.html")
    assert re.findall("Run .*", page.text) == [
        f"Run {number}: ended" for number in range(29, 9, -1)
    ]
    assert {file.name for file in page.files if file.is_dir()} == {"8", "9"}
    assert "KeyboardInterrupt" not in page.text


def test_a_failure_of_the_page_does_not_hide_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pto_insight.provider.write_run_page", lambda *paths: {}[paths])
    with RunFolder(tmp_path) as folder:
        pass
    assert json.loads((folder.path / "run.json").read_text())["exit_code"] == 0
    assert not folder.has_page
    assert f"{tmp_path}/index.html does not show this run: KeyError: " in capsys.readouterr().err
