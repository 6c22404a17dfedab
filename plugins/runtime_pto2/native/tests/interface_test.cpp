// Scopes, clusters, blocks, logs and errors of the orchestration interface. These tests use only
// the headers, not the runtime.
#include <stdexcept>

#include "check.hpp"
#include "recorded_run.hpp"

namespace {

using Events = std::vector<std::string>;

TEST(scopes_nest_and_leave_loops_alone) {
  int first = 0;
  const RecordedRun run = record([&](PTO2Runtime* rt) {
    first = __LINE__ + 1;
    PTO2_SCOPE(rt) {
      for (int i = 0; i < 3; ++i) {
        PTO2_SCOPE(rt) {
          if (i == 0) continue;
          if (i == 1) break;
        }
      }
      PTO2_SCOPE_GUARD(rt);
      PTO2_SCOPE_GUARD(rt);
      if (first < 0) PTO2_SCOPE(rt) {
        }
      else
        pto2_rt_add_dep(rt, 1, 2);
    }
    pto2_rt_scope_begin(rt);
    pto2_rt_scope_end(rt);
  });
  CHECK(run.events == (Events{"begin", "begin", "end", "begin", "end", "begin", "begin", "dep 1 2",
                              "end", "end", "end", "begin", "end"}));
  CHECK_EQUAL(run.scope_lines[0], first);
}

TEST(clusters_and_blocks_reach_the_table) {
  const RecordedRun run = record([](PTO2Runtime* rt) {
    const int32_t cluster = pto2_rt_allocate_cluster(rt);
    PTOParam params[] = {make_scalar_param(3)};
    pto2_rt_submit_task_clustered(rt, 1, PTO2_WORKER_CUBE, params, 1, cluster);
    pto2_rt_submit_task_clustered(rt, 2, PTO2_WORKER_CUBE, params, 1, -1);
    const int32_t clusters[2] = {4, 5};
    pto2_rt_submit_block_task(rt, 3, PTO2_WORKER_VECTOR, params, 1, 2, clusters);
    pto2_rt_submit_block_task(rt, 4, PTO2_WORKER_VECTOR, params, 1, 3);
    pto2_rt_free_cluster(rt, cluster);
    Tensor pipe = make_pipe_tensor();
    CHECK_EQUAL(int{pipe.data().is_pipe}, 1);
    CHECK_EQUAL(pipe.numel(), uint64_t{0});
    pto2_rt_orchestration_done(rt);
  });
  CHECK(run.events == (Events{"allocate", "free 7", "done"}));
  CHECK(run.tasks[0].clusters == std::vector<int32_t>{7});
  CHECK(run.tasks[1].clusters.empty());
  CHECK(run.tasks[2].clusters == (std::vector<int32_t>{4, 5}));
  CHECK_EQUAL(run.tasks[2].task.block_dim, 2u);
  CHECK(run.tasks[3].clusters.empty());
  CHECK_EQUAL(run.tasks[3].task.block_dim, 3u);
}

void say(PTO2Runtime* rt) {
  LOG_ERROR(rt, "%s %d", "five", 5);
  LOG_WARN(rt, "plain");
  LOG_INFO(rt, "%s", std::string(1000, 'x').c_str());
  LOG_DEBUG(rt, "%llu", 1ull);
  LOG_ALWAYS(rt, "100%%");
}

TEST(logs_are_printf_with_the_name_of_the_function) {
  const RecordedRun run = record(say);
  CHECK(run.events ==
        (Events{"log 0 say: five 5", "log 1 say: plain", "log 2 say: " + std::string(1000, 'x'),
                "log 3 say: 1", "log -1 say: 100%"}));
}

TEST(a_function_pointer_of_the_published_type_submits_from_an_unknown_line) {
  const RecordedRun run = record([](PTO2Runtime* rt) {
    using Submit = void (*)(PTO2Runtime*, int32_t, PTO2WorkerType, PTOParam*, int32_t);
    const Submit submit = pto2_rt_submit_task;
    const Submit same = &pto2_rt_submit_task;
    submit(rt, 3, PTO2_WORKER_CUBE, nullptr, 0);
    same(rt, 4, PTO2_WORKER_CUBE, nullptr, 0);
    void (*begin)(PTO2Runtime*) = pto2_rt_scope_begin;
    begin(rt);
  });
  CHECK_EQUAL(run.tasks.size(), size_t{2});
  CHECK(run.tasks[0].task.file == nullptr);
  CHECK(run.scope_lines == std::vector<int>{0});
}

TEST(a_wrong_number_of_arguments_runs_nothing) {
  for (const int32_t count : {0, 1, 3}) {
    const RecordedRun run = record([](PTO2Runtime*) { CHECK(false); }, count);
    CHECK_CONTAINS(run.errors[0], "expects 2 arguments");
    CHECK_CONTAINS(run.errors[0], "given " + std::to_string(count));
    CHECK_EQUAL(run.files[0], std::string());
    CHECK_EQUAL(recorded_run::result, -1);
  }
}

TEST(exceptions_become_errors_and_scopes_end_on_the_way) {
  const RecordedRun run = record([](PTO2Runtime* rt) {
    PTO2_SCOPE(rt) {
      throw std::runtime_error("no luck");
    }
  });
  CHECK_EQUAL(run.errors[0], std::string("the orchestration threw an exception: no luck"));
  CHECK_EQUAL(run.events.back(), std::string("end"));
  CHECK_EQUAL(recorded_run::result, -1);
  CHECK_CONTAINS(record([](PTO2Runtime*) { throw 3; }).errors[0], "not a std::exception");
  record([](PTO2Runtime*) {});
  CHECK_EQUAL(recorded_run::result, 0);
}

}  // namespace
