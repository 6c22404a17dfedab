"""ABI headers and platform_config.h compile alone, as C11 and C++17, with every compiler."""

from __future__ import annotations

import shutil
import subprocess

import pytest

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only")
LANGUAGES = {"c": "-std=c11", "c++": "-std=c++17"}
CROSS_PREFIX = "aarch64-linux-gnu-"


def compile_each_header(checkout, compiler: str, language: str) -> None:
    include = checkout.core.folder / "include"
    headers = sorted([*(include / "pto" / "abi").glob("*.h"), *include.glob("*.h")])
    assert headers
    flags = [LANGUAGES[language], *WARNINGS, "-I", str(include), "-x", language, "-"]
    for header in headers:
        name = header.relative_to(include)
        twice = f"#include <{name}>\n" * 2 + "int main(void) { return 0; }\n"
        result = subprocess.run(
            [compiler, *flags], input=twice, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, f"{compiler} {language} {header.name}:\n{result.stderr}"


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_headers_compile_alone_with_every_compiler_here(checkout, language):
    names = ("gcc", "clang", "cc") if language == "c" else ("g++", "clang++", "c++")
    compilers = [name for name in names if shutil.which(name)]
    assert compilers, f"none of {', '.join(names)} was found"
    for compiler in compilers:
        compile_each_header(checkout, compiler, language)


@pytest.mark.toolchain
@pytest.mark.parametrize("compiler", ["g++", "clang++", CROSS_PREFIX + "g++"])
def test_headers_compile_with_the_compilers_of_the_toolchain_profile(checkout, compiler):
    assert shutil.which(compiler), f"{compiler} was not found; .ci/install-toolchain installs it"
    for language in LANGUAGES:
        compile_each_header(checkout, compiler, language)


def test_a_wrong_layout_does_not_compile(checkout):
    """The layout assertions work: with another size of a struct, the header does not compile."""
    include = checkout.core.folder / "include"
    source = (
        "#include <pto/abi/payload.h>\n"
        'PTO_ABI_ASSERT(sizeof(pto_payload) == 31, "planted");\n'
        "int main(void) { return 0; }\n"
    )
    command = ["c++", "-std=c++17", "-fsyntax-only", "-I", str(include), "-x", "c++", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "planted" in result.stderr
