"""Files have at most 1,000 lines, functions 60, and lines 100 columns; file names are specific."""

from __future__ import annotations

import ast
import re

FILE_LINES = 1000
FUNCTION_LINES = 60
COLUMNS = 100
VAGUE = {"util", "utils", "helper", "helpers", "common", "misc", "shared", "stuff"}
# include paths that existing sources use
PUBLISHED = {"common/core_type.h", "task_interface/data_type.h", "task_interface/tensor.h"}
CODE = (".py", ".h", ".hpp", ".c", ".cpp", ".sh", ".cmake", ".in")


def test_files_are_short(checkout):
    long = {
        checkout.name(path): count
        for path in checkout.with_suffix(*CODE)
        if (count := len(path.read_text().splitlines())) > FILE_LINES
    }
    assert not long, f"files over {FILE_LINES} lines: {long}"


def test_python_functions_are_short(checkout):
    long = {}
    for path in checkout.with_suffix(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > FUNCTION_LINES:
                    long[f"{checkout.name(path)}:{node.name}"] = count
    assert not long, f"functions over {FUNCTION_LINES} lines: {long}"


def test_native_functions_are_short(checkout):
    """In our clang-format style, a function body ends with a '}' alone on its line."""
    long = {}
    for path in checkout.with_suffix(".c", ".cpp", ".hpp", ".h"):
        for start, count in native_bodies(path.read_text().splitlines()):
            if count > FUNCTION_LINES:
                long[f"{checkout.name(path)}:{start}"] = count
    assert not long, f"native functions over {FUNCTION_LINES} lines: {long}"


def native_bodies(lines: list[str]):
    """Yield (first line number, number of lines) of each top-level or member function body."""
    opening = re.compile(r"^( *)[^ /#*].*\)( const| noexcept| override| final| try|->[^{]*)* \{$")
    for index, line in enumerate(lines):
        match = opening.match(line)
        if not match or re.match(r" *(if|for|while|switch|else|do|catch|\})\b", line):
            continue
        # A constructor's opening line may be its last initialiser, which is indented further.
        closing = re.compile(rf"^ {{0,{len(match.group(1))}}}\}}")
        for end in range(index + 1, len(lines)):
            if closing.match(lines[end]):
                yield index + 1, end - index + 1
                break


def test_the_native_measure_finds_a_long_function():
    body = ["int f(int a) {", *["  a += 1;"] * 70, "}"]
    assert list(native_bodies(body)) == [(1, 72)]


def test_lines_fit_the_page(checkout):
    wide = [
        f"{checkout.name(path)}:{number}"
        for path in checkout.with_suffix(*CODE)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not wide, f"lines over {COLUMNS} columns: {wide}"


def test_no_vague_names(checkout):
    vague = [
        checkout.name(path)
        for path in checkout.files
        if VAGUE & {part.lower() for part in (*path.relative_to(checkout.root).parts, path.stem)}
        and "/".join(path.parts[-2:]) not in PUBLISHED
    ]
    assert not vague, f"names that do not say what is inside: {vague}"
