"""The vendor's attributes in every form and place that published sources use."""

from __future__ import annotations

import pytest

from pto_core.errors import CompileError
from pto_core.toolchain.builder import uses_attribute, without_attributes

FORMS = ["[aicore]", "[ aicore ]", "[[aicore]]", "__attribute__((aicore))"]
PLACES = [
    'extern "C" {form} void kernel_entry(int64_t* a) {{ a[0] = 1; }}',
    'extern "C" __attribute__((noinline)) {form} void kernel_entry(int64_t* a) {{ a[0] = 1; }}',
    "static {form} int one() {{ return 1; }}\n"
    'extern "C" void kernel_entry(int64_t* a) {{ a[0] = one(); }}',
    "template <class T> {form} inline T one() {{ return 1; }}\n"
    'extern "C" void kernel_entry(int64_t* a) {{ a[0] = one<int>(); }}',
    "#define __aicore__ {form}\n"
    'extern "C" __aicore__ void kernel_entry(int64_t* a) {{ a[0] = 1; }}',
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_form_and_place(bench, form: str, place: str) -> None:
    text = "#include <cstdint>\n" + place.format(form=form)
    assert bench.build(bench.write("k.cpp", text)).is_file()
    assert bench.leftovers() == []


def test_attribute_in_a_header(bench, kernel) -> None:
    bench.write("device.h", "static [aicore] int one() { return 1; }\n")
    source = bench.write("k.cpp", kernel("one()", '#include "device.h"'))
    assert bench.build(source).is_file()


def test_guarded_definition_needs_nothing(bench, kernel) -> None:
    guard = "#ifndef __aicore__\n#define __aicore__ [aicore]\n#endif"
    text = kernel("1", guard)
    assert not uses_attribute(text)
    assert bench.build(bench.write("k.cpp", text)).is_file()


def test_line_numbers_stay_the_users(bench) -> None:
    text = "#define D [aicore]\n\nstatic D int one() {\n  return wrong;\n}\n"
    with pytest.raises(CompileError) as caught:
        bench.build(bench.write("k.cpp", text))
    assert (caught.value.source, caught.value.line) == (str(bench.sources / "k.cpp"), 4)


@pytest.mark.parametrize(
    "code",
    ["x = table[aicore];", "f(table[aicore], 1)", "auto f = [aicore] { };", "[aicore](int) { }"],
)
def test_variables_of_that_name_stay(code: str) -> None:
    assert without_attributes(code) == code


def test_a_destructor_may_have_the_attribute() -> None:
    assert without_attributes("struct A { [aicore] ~A(); };") == "struct A {          ~A(); };"


def test_length_and_lines_stay() -> None:
    text = "static [\n aicore ]\n int x; [[aicore]] int y;"
    blanked = without_attributes(text)
    assert "aicore" not in blanked
    assert len(blanked) == len(text)
    assert blanked.count("\n") == text.count("\n")
