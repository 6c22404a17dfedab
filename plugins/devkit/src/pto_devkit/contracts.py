"""The contracts as test classes. The test class of a plugin derives from one and names the plugin.

A class loads its plugin when the class is defined, because the claims of the plugin select the
tests. Each test is one check, whose docstring states the contract.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from pto_devkit import (
    abi,
    claims,
    device_code,
    dispatch,
    graph_errors,
    graphs,
    memory,
    ordering,
    public_api,
    tensors,
    topology,
)
from pto_devkit.checks import contract_test, keep_tests, withdraw_unclaimed
from pto_devkit.subjects import BackendSubject, RuntimeSubject

# The tests for a variant whose tasks only an orchestration on the device can submit.
_WITHOUT_SUBMITS = {
    *("test_table", "test_claims_agree", "test_device_rules", "test_device_sources"),
    "test_unknown_options_are_refused",
}


class BackendContract:
    """The contract of backends. A subclass sets ``backend`` to the name of the backend."""

    backend: ClassVar[str]
    subject: ClassVar[BackendSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = BackendSubject.load(cls.backend)
        withdraw_unclaimed(cls, frozenset(cls.subject.plugin.capabilities))

    test_table = contract_test(claims.check_table)
    test_claims_agree = contract_test(claims.check_claims_agree)
    test_unknown_options_are_refused = contract_test(dispatch.check_unknown_options_are_refused)
    test_missing_files_are_load_errors = contract_test(dispatch.check_missing_files_are_load_errors)
    test_memory_round_trip = contract_test(memory.check_memory_round_trip)
    test_addresses_are_aligned = contract_test(memory.check_addresses_are_aligned)
    test_buffers_do_not_overlap = contract_test(memory.check_buffers_do_not_overlap)
    test_empty_buffers_are_distinct = contract_test(memory.check_empty_buffers_are_distinct)
    test_device_memory_is_apart = contract_test(memory.check_device_memory_is_apart)
    test_bad_addresses_are_refused = contract_test(memory.check_bad_addresses_are_refused)
    test_exhausted_memory_is_an_error = contract_test(memory.check_exhausted_memory_is_an_error)
    test_leaks_are_reported = contract_test(memory.check_leaks_are_reported)
    test_nothing_leaks_unasked = contract_test(memory.check_nothing_leaks_unasked)
    test_devices_are_apart = contract_test(memory.check_devices_are_apart)
    test_topology = contract_test(topology.check_topology)
    test_impossible_shapes_are_refused = contract_test(topology.check_impossible_shapes_are_refused)
    test_each_task_runs_once = contract_test(dispatch.check_each_task_runs_once)
    test_completions_are_reported_once = contract_test(dispatch.check_completions_are_reported_once)
    test_payload_is_copied = contract_test(dispatch.check_payload_is_copied)
    test_relative_arguments = contract_test(dispatch.check_relative_arguments)
    test_counters = contract_test(dispatch.check_counters)
    test_memory_of_a_run = contract_test(dispatch.check_memory_of_a_run)
    test_abort = contract_test(dispatch.check_abort)
    test_many_runs = contract_test(dispatch.check_many_runs)
    test_activity_names_the_kernel = contract_test(
        dispatch.check_activity_names_the_kernel, "activity"
    )
    test_kernels_run_beside_the_caller = contract_test(claims.check_threads, "threads")
    test_lost_device = contract_test(claims.check_lost_device, "threads")
    test_callbacks = contract_test(claims.check_callbacks, "callbacks")
    test_kernel_faults = contract_test(claims.check_kernel_faults, "callbacks")
    test_shape_is_deterministic = contract_test(
        claims.check_shape_is_deterministic, "deterministic"
    )
    test_planning_memory = contract_test(claims.check_planning_memory, "planning")
    test_seed_repeats_trace = contract_test(claims.check_seed_repeats_trace, "deterministic")
    test_seeds_differ = contract_test(claims.check_seeds_differ, "deterministic")
    test_red_zones = contract_test(claims.check_red_zones, "checking")
    test_wrong_values_are_refused = contract_test(claims.check_wrong_values_are_refused, "checking")
    test_public_arrays = contract_test(public_api.check_arrays)
    test_public_close = contract_test(public_api.check_close_twice)


class RuntimeContract:
    """The contract of runtime variants of level 2.

    A subclass sets ``runtime``. It may also set ``backend``; the default is the first healthy
    backend.
    """

    runtime: ClassVar[str]
    backend: ClassVar[str | None] = None
    subject: ClassVar[RuntimeSubject]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.subject = RuntimeSubject.load(cls.runtime, cls.backend)
        offered = {f"backend:{name}" for name in cls.subject.backend.plugin.capabilities}
        claimed = frozenset(cls.subject.plugin.capabilities) | offered
        flags = {f"table:{flag.name}".lower() for flag in abi.RuntimeFlag}
        held = {
            name for name in flags if abi.RuntimeFlag[name[6:].upper()] & cls.subject.native.flags
        }
        if claimed & {"explicit_edges", "inferred_edges"}:
            held.add("edges")
        if cls.subject.plugin.device_build() is not None:
            held.add("device_build")
        withdraw_unclaimed(cls, claimed | held)
        if not cls.subject.has_submits():
            keep_tests(cls, _WITHOUT_SUBMITS)

    test_table = contract_test(ordering.check_table)
    test_claims_agree = contract_test(ordering.check_claims_agree)
    test_device_rules = contract_test(device_code.check_device_rules, "device_build")
    test_device_sources = contract_test(device_code.check_device_sources, "device_build")
    test_unknown_options_are_refused = contract_test(graph_errors.check_unknown_options_are_refused)
    test_empty_run = contract_test(ordering.check_empty_run)
    test_core_types = contract_test(ordering.check_core_types)
    test_statistics = contract_test(ordering.check_statistics)
    test_many_runs = contract_test(ordering.check_many_runs)
    test_independent_tasks = contract_test(
        partial(ordering.check_graph, graph=graphs.independent(ordering.MANY_TASKS))
    )
    test_arguments = contract_test(ordering.check_arguments)
    test_diamond = contract_test(partial(ordering.check_graph, graph=graphs.diamond()), "edges")
    test_long_chain = contract_test(
        partial(ordering.check_graph, graph=graphs.chain(10_000)), "edges"
    )
    test_wide_fan_out_and_fan_in = contract_test(
        partial(ordering.check_graph, graph=graphs.hourglass(5_000)), "explicit_edges"
    )
    test_random_graphs = contract_test(ordering.check_random_graphs, "edges")
    test_every_shape = contract_test(ordering.check_every_shape, "edges")
    test_devices_side_by_side = contract_test(ordering.check_devices_side_by_side, "edges")
    test_edge_from_a_finished_task = contract_test(
        ordering.check_edge_from_a_finished_task, "explicit_edges", "backend:threads"
    )
    test_deterministic_runs = contract_test(
        ordering.check_deterministic_runs, "edges", "backend:deterministic"
    )
    test_checked_runs = contract_test(ordering.check_checked_runs, "edges", "backend:checking")
    test_cycle = contract_test(graph_errors.check_cycle, "explicit_edges")
    test_self_edge = contract_test(graph_errors.check_self_edge, "explicit_edges")
    test_unknown_task = contract_test(graph_errors.check_unknown_task, "explicit_edges")
    test_unknown_kernel = contract_test(graph_errors.check_unknown_kernel, "explicit_edges")
    test_too_many_arguments = contract_test(graph_errors.check_too_many_arguments, "explicit_edges")
    test_orchestration_failure = contract_test(
        graph_errors.check_orchestration_failure, "explicit_edges"
    )
    test_first_error_wins = contract_test(graph_errors.check_first_error_wins, "explicit_edges")
    test_abort = contract_test(graph_errors.check_abort, "explicit_edges")
    test_failing_kernel = contract_test(
        graph_errors.check_failing_kernel, "explicit_edges", "backend:callbacks"
    )
    test_unpublished_work = contract_test(graph_errors.check_unpublished_work, "publish")
    test_publish_twice = contract_test(graph_errors.check_publish_twice, "publish")
    test_unsupported_scopes = contract_test(graph_errors.check_unsupported_scopes, "!scopes")
    test_read_after_write = contract_test(tensors.check_read_after_write, "table:tensors")
    test_allocated_buffers_are_apart = contract_test(
        tensors.check_allocated_buffers_are_apart, "table:tensors", "scopes"
    )
    test_scopes_give_memory_back = contract_test(
        tensors.check_scopes_give_memory_back, "table:tensors", "scopes", "backend:threads"
    )
    test_deadlock_is_proven = contract_test(
        tensors.check_deadlock_is_proven, "table:tensors", "table:blocking_submit"
    )
    test_deadlock_names_what_suffices = contract_test(
        tensors.check_deadlock_names_what_suffices, "table:planning", "backend:planning"
    )
    test_clusters = contract_test(
        tensors.check_clusters, "table:clusters", "backend:callbacks", "backend:threads"
    )
    test_public_graph = contract_test(public_api.check_graph, "explicit_edges", "backend:callbacks")
    test_public_errors = contract_test(
        public_api.check_errors, "explicit_edges", "backend:callbacks"
    )
