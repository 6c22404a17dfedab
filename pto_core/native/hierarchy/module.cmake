# The Python module pto_core._hierarchy.
pto_core_unit(bind_worker
  native/hierarchy/bind_capture.cpp
  native/hierarchy/bind_driver.cpp
  native/hierarchy/bind_orchestrator.cpp
  native/hierarchy/bind_trace.cpp
)
pto_core_unit(bind_parts
  native/hierarchy/bind_arguments.cpp
  native/hierarchy/bind_callable.cpp
  native/hierarchy/bind_child.cpp
  native/hierarchy/bind_endpoint.cpp
  native/hierarchy/bind_engine.cpp
  native/hierarchy/bind_module.cpp
  native/hierarchy/bind_processes.cpp
  native/hierarchy/bind_remote.cpp
)
pto_core_unit(engine
  native/hierarchy/engine/core.cpp
  native/hierarchy/engine/dispatch.cpp
  native/hierarchy/engine/endings.cpp
  native/hierarchy/engine/engine.cpp
  native/hierarchy/engine/regions.cpp
  native/hierarchy/engine/snapshot.cpp
  native/hierarchy/engine/submission.cpp
  native/hierarchy/trace/tracer.cpp
)
pto_core_unit(driver
  native/hierarchy/driver/child_link.cpp
  native/hierarchy/driver/core.cpp
  native/hierarchy/driver/drive.cpp
  native/hierarchy/driver/driver.cpp
  native/hierarchy/driver/exchange.cpp
  native/hierarchy/driver/near_inputs.cpp
  native/hierarchy/driver/records.cpp
  native/hierarchy/driver/role.cpp
  native/hierarchy/driver/run_book.cpp
  native/hierarchy/driver/submitter.cpp
)
pto_core_unit(worker
  native/hierarchy/driver/captures.cpp
  native/hierarchy/driver/child_memory.cpp
  native/hierarchy/driver/run_scope.cpp
  native/hierarchy/driver/submits.cpp
  native/hierarchy/driver/task_handle.cpp
  native/hierarchy/driver/worker_driver.cpp
)
pto_core_unit(children
  native/hierarchy/arguments/blob.cpp
  native/hierarchy/arguments/continuous_tensor.cpp
  native/hierarchy/arguments/task_args.cpp
  native/hierarchy/arguments/task_args_view.cpp
  native/hierarchy/arguments/visible_memory.cpp
  native/hierarchy/child/child_loop.cpp
  native/hierarchy/endpoint/python_ends.cpp
  native/hierarchy/processes/current_process.cpp
  native/hierarchy/processes/processes.cpp
  native/hierarchy/remote/bell_watch.cpp
  native/hierarchy/remote/packed_tasks.cpp
  native/hierarchy/remote/ports.cpp
)

nanobind_add_module(_hierarchy NOMINSIZE
  ${bind_worker} ${bind_parts} ${engine} ${driver} ${worker} ${children} ${shared}
  native/numpy_import.cpp)
set_target_properties(_hierarchy PROPERTIES UNITY_BUILD_MODE GROUP)
target_link_libraries(_hierarchy PRIVATE pto_core::abi ${CMAKE_DL_LIBS})
target_include_directories(_hierarchy SYSTEM PRIVATE ${Python_NumPy_INCLUDE_DIRS})
target_include_directories(_hierarchy PRIVATE native native/hierarchy)
target_compile_options(_hierarchy PRIVATE -Wall -Wextra -Wpedantic -Werror)

pto_core_source_digest(_hierarchy
  native/*.cpp native/*.hpp native/hierarchy/*.cpp native/hierarchy/*.hpp
  native/hierarchy/*/*.cpp native/hierarchy/*/*.hpp include/pto/*/*.h include/pto/*/*.hpp)
