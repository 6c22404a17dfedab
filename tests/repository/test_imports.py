"""Rules for imports: the core imports no plugin; plugins import only the core."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection
from pathlib import Path

FAMILIES = re.compile(r"pto_((backend|runtime|transport|scheduler|launcher)_|(devkit|insight)$)")
DISTRIBUTION_OF = {
    "ml_dtypes": "ml_dtypes",
    "zmq": "pyzmq",
    "pto_transport_zmq": "ptorun-transport-zmq",
}
TYPES_FOR_THE_CORE = ("pto_insight", "pto_transport_zmq")
BINDING = re.compile(r"#\s*include\s*[<\"](Python\.h|nanobind/)")
EXTENSION_MODULE = re.compile(r"^nanobind_add_module\((\w+)", re.M)
ENVIRONMENT_CALL = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")


# The floors of the core, from the lowest; a module imports none of a higher floor.
FLOORS = (
    (  # the base
        *("errors", "config", "plugins", "interfaces", "interrupts", "_interrupts", "log", "trust"),
        *("notebooks", "output_files", "progress", "standard_streams", "user_ranges"),
    ),
    ("kernels", "toolchain", "device", "_native", "chip"),  # one chip
    ("worker", "_worker", "published"),  # Workers
    ("cases",),
    ("cli",),
)
# The interface of orchestrators names types of Workers, and a kernel accepts both kinds of
# arguments.
UPWARD = {
    ("interfaces.orchestrator", "_worker"),
    ("kernels.typed", "_worker"),
}
# What any plugin may import from the core, and what only those plugins may that are a part of it in
# a distribution of their own.
PUBLIC = {"chip", "config", "errors", "interfaces", "kernels", "log", "plugins", "toolchain"}
INNER = {
    "pto_compat_simpler": {"cases", "output_files", "published"},
    "pto_devkit": {"worker", "_worker"},
    "pto_insight": {"cases", "cli", "notebooks", "output_files", "trust", "user_ranges", "worker"},
    "pto_transport_zmq": {"cli", "device", "worker", "trust", "_worker", "_native"},
}


def for_type_checkers(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes under ``if TYPE_CHECKING``, which programs do not execute."""
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    blocks = [node for node in tests if getattr(node.test, "id", "") == "TYPE_CHECKING"]
    return {inner for block in blocks for node in block.body for inner in ast.walk(node)}


def imported(path: Path) -> set[str]:
    """Return the top-level modules that a file imports, at any depth, by statement or by name.

    The core names types of graphs, traces and remote buffers, which are in plugins, for type
    checkers only.
    """
    names: set[str] = set()
    tree = ast.parse(path.read_text())
    is_core = "pto_core" in path.parts
    unseen = for_type_checkers(tree) if is_core else set()
    for node in ast.walk(tree):
        if node in unseen and getattr(node, "module", "").startswith(TYPES_FOR_THE_CORE):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module"
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            names.add(str(node.args[0].value))
    return {name.partition(".")[0] for name in names if name}


def test_the_core_imports_no_plugin(checkout):
    for path in checkout.core.source.rglob("*.py"):
        found = {name for name in imported(path) if FAMILIES.match(name)}
        assert not found, f"{checkout.name(path)} imports {found}"


def test_the_core_does_not_name_a_plugins_library(checkout):
    for path in checkout.core.folder.joinpath("native").rglob("*.[ch]pp"):
        assert not re.search(r"libpto_(?!core)", path.read_text()), checkout.name(path)


def test_plugins_import_only_the_core(checkout):
    """Only launchers import another plugin: the one with the agents that they start."""
    for plugin in checkout.plugins:
        for path in plugin.source.rglob("*.py"):
            found = {name for name in imported(path) if FAMILIES.match(name)}
            allowed = {plugin.import_name}
            inside = path.relative_to(plugin.source).parts
            if plugin.import_name == "pto_launcher_ray" or {"launcher", "launchers"} & {*inside}:
                allowed.add("pto_transport_zmq")
            assert found <= allowed, f"{checkout.name(path)} imports {found}"


def test_packages_import_only_what_they_declare(checkout):
    for package in checkout.packages:
        project = package.pyproject["project"]
        requirements = list(project.get("dependencies", []))
        requirements += [r for rs in project.get("optional-dependencies", {}).values() for r in rs]
        declared = {re.match(r"[\w-]+", requirement)[0].lower() for requirement in requirements}
        allowed = {package.import_name}
        if "ptorun-core" in declared:
            allowed.add("pto_core")
        for path in package.source.rglob("*.py"):
            strangers = {
                name
                for name in imported(path) - sys.stdlib_module_names - allowed
                if DISTRIBUTION_OF.get(name, name).lower() not in declared
            }
            # Only type checkers read these imports, and they have a copy of the package.
            strangers.discard("typing_extensions")
            # The conformance kit and the tests of a new plugin run in the pytest of the plugin's
            # author.
            if package.import_name == "pto_devkit":
                strangers -= {"pytest", "hypothesis"}
            assert not strangers, f"{checkout.name(path)} imports undeclared {strangers}"


def modules(package) -> dict[str, Path]:
    """Return the files of a package's modules by name; for an extension module, its build file."""
    found = {}
    for path in package.source.rglob("*.py"):
        parts = path.relative_to(package.source.parent).with_suffix("").parts
        if "skeleton" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = path
    for pattern in ("CMakeLists.txt", "native/**/*.cmake"):
        for path in package.folder.glob(pattern):
            for name in EXTENSION_MODULE.findall(path.read_text()):
                found[f"{package.import_name}.{name}"] = path
    return found


def imports(path: Path, known: Collection[str]) -> set[str]:
    """Return the known modules that a file imports, also in functions and for type checkers."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in known else str(node.module) for name in names}
    return found & set(known)


def test_the_floors_of_the_core(checkout):
    floor_of = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    known = modules(checkout.core)
    upward = set()
    for module, path in known.items():
        name = module.removeprefix("pto_core.")
        if module == "pto_core" or path.suffix != ".py":
            continue
        for used in imports(path, known) - {"pto_core"}:
            part = used.split(".")[1]
            if floor_of[part] > floor_of[name.partition(".")[0]]:
                upward.add((name, part))
    assert upward == UPWARD


def test_plugins_import_only_public_modules_of_the_core(checkout):
    known = modules(checkout.core)
    for plugin in checkout.plugins:
        allowed = PUBLIC | INNER.get(plugin.import_name, set())
        for path in plugin.source.rglob("*.py"):
            used = {name.split(".")[1] for name in imports(path, known) - {"pto_core"}}
            assert used <= allowed, f"{checkout.name(path)} imports {used - allowed}"


def import_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules in import cycles, and the modules that import any of these."""
    left = dict(graph)
    while leaves := [name for name, used in left.items() if not used & left.keys()]:
        for name in leaves:
            del left[name]
    while roots := set(left) - {name for used in left.values() for name in used}:
        for name in roots:
            del left[name]
    return sorted(left)


def test_no_import_cycle(checkout):
    for package in checkout.packages:
        known = modules(package)
        graph = {
            name: imports(path, known.keys()) - {name} if path.suffix == ".py" else set()
            for name, path in known.items()
        }
        cycle = import_cycle(graph)
        assert not cycle, f"modules of {package.import_name} import each other: {cycle}"


def test_the_search_for_import_cycles_finds_one():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert import_cycle(graph) == ["b", "c"]
    assert import_cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_the_bindings_import_modules_that_exist(checkout):
    known = modules(checkout.core)
    for path in checkout.core.folder.joinpath("native").rglob("*.[ch]pp"):
        for name in re.findall(r'import_\("(pto_core[\w.]*)"\)', path.read_text()):
            assert name in known, f"{checkout.name(path)} imports {name}"


def test_only_the_bindings_include_python(checkout):
    for path in checkout.with_suffix(".h", ".hpp", ".c", ".cpp"):
        # benchmarks/peers also has a binding: an empty call from Python, the lower bound of a
        # benchmark.
        bindings = (checkout.core.folder / "native", checkout.root / "benchmarks" / "peers")
        if any(path.is_relative_to(folder) for folder in bindings):
            continue
        assert not BINDING.search(path.read_text()), f"{checkout.name(path)} includes Python"


def test_the_abi_includes_only_itself_and_standard_headers(checkout):
    standard = {"stdint.h", "stddef.h", "stdbool.h", "assert.h"}
    for path in checkout.core.folder.joinpath("include/pto/abi").glob("*.h"):
        for header in re.findall(r"#\s*include\s*[<\"]([^>\"]+)", path.read_text()):
            own = header.startswith("pto/abi/")
            assert own or header in standard, f"{checkout.name(path)} includes {header}"


def is_environment(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr in {"environ", "environb", "getenv"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    )


def environment_reads(source: str) -> list[int]:
    """List the lines that read the process's environment, but not those that prepare a child's."""
    tree = ast.parse(source)
    writes = {
        id(node.value)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "update")
        or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store))
    }
    reads = (node for node in ast.walk(tree) if is_environment(node) and id(node) not in writes)
    return [node.lineno for node in reads if isinstance(node, ast.Attribute)]


def test_only_the_configuration_reads_the_environment(checkout):
    folder = checkout.core.source / "config"
    for package in checkout.packages:
        for path in package.source.rglob("*.py"):
            if not path.is_relative_to(folder):
                lines = environment_reads(path.read_text())
                assert not lines, f"{checkout.name(path)}:{lines} read the environment"
        for path in (package.folder / "native").rglob("*.[ch]*"):
            is_test = "tests" in path.relative_to(package.folder).parts
            if path.suffix in {".h", ".hpp", ".c", ".cpp"} and not is_test:
                found = ENVIRONMENT_CALL.search(path.read_text())
                assert not found, f"{checkout.name(path)} reads the environment: {found[0]}"


def test_the_search_for_environment_reads_finds_them():
    source = "import os\nos.environ['A'] = '1'\nos.environ.update(b=2)\nc = os.environ['A']\n"
    assert environment_reads(source) == [4]
    assert environment_reads("import os\nos.getenv('A')\n") == [2]


def test_every_abi_struct_is_pinned_by_an_assertion(checkout):
    for path in checkout.core.folder.joinpath("include/pto/abi").glob("*.h"):
        text = path.read_text()
        for name in re.findall(r"^typedef struct (pto_\w+) \{", text, re.MULTILINE):
            assert f"sizeof({name})" in text, f"{checkout.name(path)}: no size asserted for {name}"
