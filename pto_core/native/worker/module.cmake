# The Python module pto_core._worker.
pto_core_unit(bind_worker
  native/worker/bind_capture.cpp
  native/worker/bind_driver.cpp
  native/worker/bind_orchestrator.cpp
  native/worker/bind_trace.cpp
)
pto_core_unit(bind_parts
  native/worker/bind_arguments.cpp
  native/worker/bind_callable.cpp
  native/worker/bind_child.cpp
  native/worker/bind_endpoint.cpp
  native/worker/bind_engine.cpp
  native/worker/bind_module.cpp
  native/worker/bind_processes.cpp
  native/worker/bind_remote.cpp
)
pto_core_unit(engine
  native/worker/engine/core.cpp
  native/worker/engine/dispatch.cpp
  native/worker/engine/endings.cpp
  native/worker/engine/engine.cpp
  native/worker/engine/regions.cpp
  native/worker/engine/snapshot.cpp
  native/worker/engine/submission.cpp
  native/worker/trace/tracer.cpp
)
pto_core_unit(driver
  native/worker/driver/child_link.cpp
  native/worker/driver/core.cpp
  native/worker/driver/drive.cpp
  native/worker/driver/driver.cpp
  native/worker/driver/exchange.cpp
  native/worker/driver/near_inputs.cpp
  native/worker/driver/records.cpp
  native/worker/driver/role.cpp
  native/worker/driver/run_book.cpp
  native/worker/driver/submitter.cpp
  native/worker/driver/withdrawals.cpp
)
pto_core_unit(worker
  native/worker/driver/captures.cpp
  native/worker/driver/child_memory.cpp
  native/worker/driver/run_scope.cpp
  native/worker/driver/submits.cpp
  native/worker/driver/task_handle.cpp
  native/worker/driver/worker_driver.cpp
)
pto_core_unit(children
  native/worker/arguments/blob.cpp
  native/worker/arguments/continuous_tensor.cpp
  native/worker/arguments/task_args.cpp
  native/worker/arguments/task_args_view.cpp
  native/worker/arguments/visible_memory.cpp
  native/worker/child/child_loop.cpp
  native/worker/endpoint/python_ends.cpp
  native/worker/processes/current_process.cpp
  native/worker/processes/processes.cpp
  native/worker/processes/protected_pages.cpp
  native/worker/remote/bell_watch.cpp
  native/worker/remote/packed_tasks.cpp
  native/worker/remote/ports.cpp
)

nanobind_add_module(_worker NOMINSIZE
  ${bind_worker} ${bind_parts} ${engine} ${driver} ${worker} ${children} ${shared}
  native/numpy_import.cpp)
set_target_properties(_worker PROPERTIES UNITY_BUILD_MODE GROUP)
target_link_libraries(_worker PRIVATE pto_core::abi ${CMAKE_DL_LIBS})
target_include_directories(_worker SYSTEM PRIVATE ${Python_NumPy_INCLUDE_DIRS})
target_include_directories(_worker PRIVATE native native/worker)
target_compile_options(_worker PRIVATE -Wall -Wextra -Wpedantic -Werror)

pto_core_source_digest(_worker
  native/*.cpp native/*.hpp native/worker/*.cpp native/worker/*.hpp
  native/worker/*/*.cpp native/worker/*/*.hpp include/pto/*/*.h include/pto/*/*.hpp)
