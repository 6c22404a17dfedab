"""Words that must not appear in the tree; the patterns do not match their own text."""

from __future__ import annotations

import re

FORBIDDEN = {
    "a plan in the source; plans live in issues and docs/adr": r"\b(T[O]DO|FIX[M]E|X[X]X)\b",
    "a status line": r"^\s*(#|//|\*|>)?\s*Stat[u]s:",
    "the address of a package index": r"https?://[\w.-]*(p[y]pi|pytho[n]hosted|index-u[r]l)",
    "an index setting": r"--(extra-)?index-u[r]l|PIP_(EXTRA_)?INDEX_U[R]L\s*=\s*http",
    "a path of one machine": r"(?<![\w.])/(ho[m]e|U[s]ers|ro[o]t|wo[r]k|m[n]t)/\w",
    "a note on who wrote it": r"(?i)co-author[e]d-by:|gener[a]ted (with|by) (an? )?(AI|LLM)\b",
    "a conflict marker": r"^(<{7}|>{7}) ",
}
BINARY = {".png", ".svg", ".npz", ".npy", ".bin"}


def test_no_forbidden_words(checkout):
    found = []
    for path in checkout.files:
        if path.suffix in BINARY:
            continue
        text = path.read_text()
        for meaning, pattern in FORBIDDEN.items():
            for match in re.finditer(pattern, text, re.MULTILINE):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{checkout.name(path)}:{line}: {match[0]!r}: {meaning}")
    assert not found, "\n".join(found)


def test_the_patterns_find_what_they_describe():
    planted = "# TO" + "DO: later\n" + "see /ho" + "me/ann/x\n"
    hits = [meaning for meaning, pattern in FORBIDDEN.items() if re.search(pattern, planted, re.M)]
    assert len(hits) == 2


def test_no_stand_alone_fences(checkout):
    """Sanitizers do not understand fences, so memory orders must be part of the atomic accesses."""
    fence = re.compile(r"atomic_thread_f[e]nce|__sync_synchr[o]nize|\b_mm_[lsm]fence")
    for path in checkout.with_suffix(".h", ".hpp", ".c", ".cpp"):
        if path.name == "measured_kernel.hpp":  # it defines the compiler's function for a fence
            continue
        assert not fence.search(path.read_text()), checkout.name(path)


def test_constraints_contain_only_exact_pins(checkout):
    for line in (checkout.root / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            assert re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line), line
