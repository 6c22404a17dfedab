"""Compare the native analysis of logs with brute force, and test its parts one by one."""

from __future__ import annotations

import dataclasses
import random
import secrets

import numpy as np
import pytest
from log_oracle import (
    BASE,
    INOUT,
    INPUT,
    NO_DEP,
    OUTPUT,
    OUTPUT_EXISTING,
    Program,
    View,
    conflicts_of,
    edges_of_host,
    log_of,
    order_of,
    random_program,
    reasons_of,
    with_host,
)

from pto_core.cases.report import OutputReport
from pto_core.errors import RaceError, UsageError
from pto_insight.graphs import AccessLog, TaskGraph, Why
from pto_insight.graphs.analysis import CONFLICT
from pto_insight.graphs.log import Buffer
from pto_insight.wrong_outputs import explain_wrong

PROGRAMS = 60
WHOLE = View((64,), (0,), (64,))
LOW = View((64,), (0,), (32,))
HIGH = View((64,), (32,), (32,))
LEFT = View((8, 8), (0, 0), (8, 4))
RIGHT = View((8, 8), (0, 4), (8, 4))


def graph_of(*tasks, explicit=(), is_full=True) -> TaskGraph:
    return TaskGraph(log_of(Program(tasks, tuple(explicit), is_full)))


def conflicts(graph: TaskGraph) -> set[tuple[int, int]]:
    packed, is_complete = graph.conflict_rows(10**9)
    assert is_complete
    rows = np.frombuffer(packed, CONFLICT)
    assert (rows["shared_bytes"] > 0).all()
    found = {(int(row["first"]), int(row["second"])) for row in rows}
    assert len(found) == len(rows), "a pair is reported twice"
    return found


def edges_of(program: Program) -> set[tuple[int, int]]:
    task = [task for task, _, _ in program.accesses]
    found = {(task[first], task[second]) for first, second, _ in reasons_of(program)}
    return found | set(program.explicit)


def check_program(program: Program) -> None:
    graph = TaskGraph(log_of(program))
    rows = graph.reason_rows[graph.reason_rows["why"] != Why.EXPLICIT]
    found = {
        (int(row["first_access"]), int(row["second_access"]), Why(int(row["why"]))) for row in rows
    }
    assert found == reasons_of(program)
    accesses = program.accesses
    for row in rows:
        first, second = accesses[int(row["first_access"])], accesses[int(row["second_access"])]
        assert int(row["shared_bytes"]) == (first[2].mask & second[2].mask).sum()
    edges = edges_of(program)
    assert {(int(row["first"]), int(row["second"])) for row in graph.edge_rows} == edges
    before = order_of(len(program.tasks), edges)
    for first, second in np.ndindex(before.shape):
        assert graph.is_before(first, second) == before[first, second], (first, second)
    for edge in graph.edge_rows:
        first, second = int(edge["first"]), int(edge["second"])
        others = {other for other, to in edges if to == second and other != first}
        assert bool(edge["is_redundant"]) == any(before[first, other] for other in others)
    assert conflicts(graph) == conflicts_of(program, before)


def without(program: Program, numbers: random.Random) -> Program:
    """Remove explicit edges, and change the tags of some accesses to NO_DEP."""
    tasks = tuple(
        tuple((NO_DEP if numbers.random() < 0.15 else tag, view) for tag, view in task)
        for task in program.tasks
    )
    explicit = tuple(edge for edge in program.explicit if numbers.random() < 0.5)
    return dataclasses.replace(program, tasks=tasks, explicit=explicit)


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "raw"])
def test_random_programs_equal_brute_force(is_full, request):
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    count = PROGRAMS * (50 if request.config.getoption("full", False) else 1)
    for _ in range(count):
        program = random_program(numbers.getrandbits(32), numbers.randrange(2, 40), is_full)
        check_program(program)
        check_program(without(program, numbers))


def test_a_graph_states_why_a_task_waits():
    graph = graph_of([(OUTPUT, WHOLE)], [(INPUT, LOW)], [(OUTPUT, LOW)], [(INPUT, HIGH)])
    edges = {(edge.first, edge.second): edge for edge in graph.edges}
    assert edges[0, 1].reasons[0].why is Why.READ
    assert {r.why for r in edges[1, 2].reasons} == {Why.ANTI_DEPENDENCE}
    assert edges[0, 2].is_redundant
    assert not edges[1, 2].is_redundant
    assert str(edges[0, 1].reasons[0]) == (
        "reads memory 0[0:32] [INPUT], written as memory 0 [OUTPUT]"
    )


def test_an_edge_by_byte_hull_states_whether_bytes_are_shared():
    graph = graph_of([(OUTPUT, LEFT)], [(INPUT, RIGHT)], [(INPUT, View((64,), (4,), (8,)))])
    assert [(edge.first, edge.second) for edge in graph.edges] == [(0, 2)]
    edge = next(graph.edges)
    assert edge.is_conservative
    assert not edge.is_disjoint
    graph = graph_of([(OUTPUT, LEFT)], [(INPUT, View((64,), (4,), (4,)))])
    assert next(graph.edges).is_disjoint
    assert "no byte is shared" in str(next(graph.edges).reasons[0])


def test_why_returns_the_chain_or_states_that_the_tasks_are_unordered():
    graph = graph_of(
        [(OUTPUT, LOW)], [(INPUT, LOW), (OUTPUT, HIGH)], [(INPUT, HIGH)], [(INPUT, LOW)]
    )
    chain = graph.why(2, "k#0")
    assert [task.index for task, _ in chain.chain] == [1, 2]
    assert "k#2 waits for k#0" in str(chain)
    assert not graph.why(3, 2)
    assert "nothing orders k#3 after k#2" in str(graph.why(3, 2))
    assert not graph.why(0, 2)
    assert "k#0 does not wait for k#2: k#2 waits for k#0" in str(graph.why(0, 2))


def test_why_returns_a_shortest_chain():
    graph = graph_of([], [], [], [], explicit=[(0, 1), (1, 2), (2, 3), (0, 2)])
    assert [task.index for task, _ in graph.why(3, 0).chain] == [2, 3]


def test_the_last_writers_are_those_that_no_later_one_follows():
    log = log_of(Program((((OUTPUT, WHOLE),), ((OUTPUT, LOW),), ((INPUT, WHOLE),)), (), True))
    log = dataclasses.replace(log, buffers=(Buffer("x", BASE, 64, True, True),))
    graph = TaskGraph(log)
    assert [access.task.index for access in graph.last_writers("x", 5)] == [1]
    assert [access.task.index for access in graph.last_writers("x", 40)] == [0]
    raw = TaskGraph(dataclasses.replace(log, is_full=False))
    assert [access.task.index for access in raw.last_writers("x", 5)] == [0, 1]
    with pytest.raises(UsageError, match="no argument of the run is called 'y'"):
        graph.last_writers("y", 0)


def test_a_write_of_the_orchestration_sets_one_element_of_its_place():
    one = View((64,), (5,), (1,))
    views = ((OUTPUT, WHOLE), *((OUTPUT_EXISTING, view) for view in (LOW, WHOLE, one)))
    views += ((INPUT, WHOLE), (OUTPUT, LOW), (INPUT, WHOLE))
    log = log_of(Program(tuple((view,) for view in views), (), True, frozenset((1, 2, 3))))
    graph = TaskGraph(dataclasses.replace(log, buffers=(Buffer("x", BASE, 64, True, True),)))

    def first(count: int) -> AccessLog:
        known = graph.log.tasks[:count], graph.log.accesses[:count]
        return dataclasses.replace(graph.log, tasks=known[0], accesses=known[1])

    def last(byte: int, count: int = 5) -> list[int]:
        return [access.task.index for access in TaskGraph(first(count)).last_writers("x", byte)]

    def explained(count: int, byte: int) -> list[str]:
        output = OutputReport("x", (64,), "uint8", 64, 1, 1, (byte,), (byte,), 1, 0, 0, 0)
        return explain_wrong(first(count), output, 1).splitlines()

    assert (last(5), last(6), last(40)) == ([3], [0, 1, 2], [0, 2])
    assert (last(6, 7), last(40, 7)) == ([5], [0, 2])
    assert explained(7, 6) == ["x[6] was last written by", "  k#2: x[0:32] [OUTPUT]"]
    assert explained(5, 6) == [
        "x[6] can have been last written by each of these; set_tensor_data sets one element, "
        "and its index is not recorded",
        "  k#0: x [OUTPUT]",
        "  set_tensor_data#0: x[0:32] [OUTPUT_EXISTING]",
        "  set_tensor_data#1: x [OUTPUT_EXISTING]",
    ]

    def before(access: int, most: int) -> list[tuple[int, str]]:
        return [(one.task.index, one.place) for one in graph.writers_before(access, most)]

    reader = [(3, "x[5:6]"), (2, "x"), (1, "x[0:32]"), (0, "x")]
    assert before(4, 8) == reader
    assert before(4, 1) == [reader[0], reader[1], reader[3]]
    assert before(6, 8) == [(5, "x[0:32]"), (2, "x"), (0, "x")]


def test_reports_limit_the_writes_of_the_orchestration_that_share_bytes():
    beside = [(OUTPUT_EXISTING, RIGHT)] * 8
    views = [(OUTPUT, WHOLE), (OUTPUT_EXISTING, LEFT), *beside, (INPUT, LEFT)]
    log = log_of(Program(tuple((view,) for view in views), (), True, frozenset(range(1, 10))))
    graph = TaskGraph(log)
    assert [one.task.index for one in graph.writers_before(10, 8)] == [1, 0]

    views = [(OUTPUT, WHOLE), *[(OUTPUT_EXISTING, LEFT)] * 9]
    log = log_of(Program(tuple((view,) for view in views), (), True, frozenset(range(1, 10))))
    log = dataclasses.replace(log, buffers=(Buffer("x", BASE, 64, True, True),))
    output = OutputReport("x", (64,), "uint8", 64, 1, 1, (0,), (0,), 1, 0, 0, 0)
    _, first, second, *_, last = explain_wrong(log, output, 1).splitlines()
    assert (first, second.split(":")[0]) == ("  k#0: x [OUTPUT]", "  set_tensor_data#1")
    assert last == "  and 1 earlier calls of set_tensor_data"


def test_the_report_lists_races_without_those_that_another_fix_orders():
    graph = graph_of([(OUTPUT, LOW)], [(INPUT, LOW)], [(OUTPUT, LOW)], is_full=False)
    findings = graph.check()
    found = {(race.first.index, race.second.index): race.is_implied for race in findings.races}
    assert found == {(0, 2): True, (1, 2): False}
    text = str(findings)
    assert text.startswith("races: 2\nk#1 and k#2 share 32 bytes")
    assert text.endswith("the fixes above order 1 more pair")
    shown = findings._repr_html_()
    assert shown.count("<th>races: 2</th>") == 2
    assert "the fixes above order 1 more pair" in shown
    with pytest.raises(RaceError, match="2 pairs of tasks race; k#1 and k#2 share"):
        findings.raise_for_races()


def test_the_report_lists_one_finding_of_each_source_line():
    log = log_of(Program((((OUTPUT, LOW),),) * 5, (), False))
    log.tasks["file"], log.tasks["line"] = 1, [1, 2, 2, 2, 3]
    findings = TaskGraph(dataclasses.replace(log, files=("graph.py",))).check()
    pairs = [(race.first.index, race.second.index) for race in findings.races]
    assert len(pairs) == 10
    text = str(findings)
    assert text.count(" share ") == 4  # the lines 1 and 2, 1 and 3, 2 and 2, 2 and 3
    assert "and 2 more from the same source lines: k#0 and k#2, k#0 and k#3" in text
    assert 'fix: run with hazards="full", or submit k#1 with after=k#0' in text


def test_wrong_names_of_tasks_are_refused():
    graph = graph_of([(OUTPUT, LOW)], [(INPUT, LOW)])
    with pytest.raises(UsageError, match="no task is called 'j'"):
        graph.find("j")
    with pytest.raises(UsageError, match="2 tasks run the kernel 'k'"):
        graph.find("k")
    with pytest.raises(UsageError, match="there is no task 7"):
        graph.why(7, 0)
    with pytest.raises(UsageError, match="task 1 is k#1, not other#1"):
        graph.find("other#1")
    with pytest.raises(UsageError, match="both names are of one task, k#1"):
        graph.why("k#1", 1)
    with pytest.raises(UsageError, match="there is no task -1"):
        graph.task(-1)


def test_a_log_survives_its_file(tmp_path):
    program = random_program(7, 20, True)
    log_of(program).save(tmp_path / "log.npz")
    again = TaskGraph(AccessLog.load(tmp_path / "log.npz"))
    assert again.to_json() == TaskGraph(log_of(program)).to_json()


def test_another_file_is_not_a_log(tmp_path):
    (tmp_path / "log.npz").write_bytes(b"nothing")
    with pytest.raises(UsageError, match="is not an access log"):
        AccessLog.load(tmp_path / "log.npz")


@pytest.mark.parametrize(
    ("field", "value"), [("ndims", 9), ("dtype", 99), ("tag", 7), ("owner", 13)]
)
def test_a_damaged_log_is_refused(field, value):
    log = log_of(random_program(3, 5, True))
    log.accesses[field][2] = value
    with pytest.raises(UsageError, match="the access log is damaged"):
        TaskGraph(log)


def test_races_name_tasks_bytes_and_the_change_that_orders_them():
    findings = graph_of([(INPUT, LOW)], [(OUTPUT, WHOLE)], is_full=False).check()
    (race,) = findings.races
    assert (race.first.index, race.second.index) == (0, 1)
    assert (race.begin, race.end, race.shared_bytes) == (0, 32, 32)
    assert race.fix.startswith('run with hazards="full"')
    assert not findings.declared


def test_excepted_pairs_are_listed_apart():
    findings = graph_of([(OUTPUT, LOW)], [(OUTPUT_EXISTING, LOW)], [(NO_DEP, LOW)]).check()
    assert findings.is_clean
    assert [(r.first.index, r.second.index) for r in findings.declared] == [(0, 1), (0, 2), (1, 2)]


def test_a_task_does_not_race_because_the_earlier_one_declared_an_existing_output():
    findings = graph_of([(OUTPUT_EXISTING, LOW)], [(OUTPUT, LOW)], is_full=False).check()
    (race,) = findings.races
    assert (race.first_tag, race.second_tag) == ("OUTPUT_EXISTING", "OUTPUT")
    assert not findings.declared


def test_a_read_just_past_an_array_that_was_copied_in_is_uninitialised():
    half = View((32,), (0,), (32,))
    log = log_of(Program((((INPUT, half),), ((INPUT, half),)), (), True))
    log.accesses["size"], log.accesses["address"][1] = 32, BASE + 32
    buffers = (Buffer("x", BASE, 32, True, True), Buffer("y", BASE + 32, 32, False, True))
    findings = TaskGraph(dataclasses.replace(log, buffers=buffers)).check()
    assert [access.place for access in findings.uninitialised_reads] == ["y"]


def test_a_limit_ends_the_search_and_is_reported():
    program = [[(OUTPUT_EXISTING, WHOLE)]] * 30
    findings = graph_of(*program).check(limit=10)
    assert not findings.is_complete
    assert len(findings.declared) == 10


def test_ordered_readers_and_writers_of_one_buffer_cost_little():
    """The chain has 200 million ordered pairs of tasks; the analysis must not visit each one."""
    tasks = [[(INOUT, WHOLE)] if n % 3 else [(INPUT, WHOLE)] for n in range(20_000)]
    graph = graph_of(*tasks)
    assert conflicts(graph) == set()


@pytest.mark.parametrize("is_full", [True, False], ids=["full", "raw"])
def test_accesses_of_the_orchestration_order_as_by_brute_force(is_full):
    seed = secrets.randbits(32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(PROGRAMS // 3):
        program = random_program(numbers.getrandbits(32), numbers.randrange(2, 40), is_full)
        program = with_host(program, numbers)
        graph = TaskGraph(log_of(program))
        before = order_of(len(program.tasks), edges_of(program) | edges_of_host(program))
        for first, second in np.ndindex(before.shape):
            assert graph.is_before(first, second) == before[first, second], (first, second)
        assert conflicts(graph) == conflicts_of(program, before)


@pytest.mark.parametrize("is_written_first", [True, False], ids=["before", "between"])
def test_writes_of_the_orchestration_and_tasks_have_few_edges(is_written_first):
    """Each of 5,000 writes overlaps the memory of each of 5,000 tasks."""
    count = 5_000
    element = [(OUTPUT_EXISTING, View((64,), (n % 64,), (1,))) for n in range(count)]
    if is_written_first:
        tasks = [*([one] for one in element), *[[(INPUT, WHOLE)]] * count]
        host = range(count)
    else:
        tasks = [task for one in element for task in ([(INPUT, WHOLE)], [one])]
        host = range(1, 2 * count, 2)
    graph = TaskGraph(log_of(Program(tuple(map(tuple, tasks)), (), True, frozenset(host))))
    assert len(graph.reason_rows) < 4 * count
    assert graph.is_before(count - 1, count)
    assert conflicts(graph) == set()
