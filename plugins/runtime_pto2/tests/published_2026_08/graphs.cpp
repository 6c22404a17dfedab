// Calls a body several times with other tensors and scalars, as a graph or inline: bit 0 of the
// scalar says which, the next three bits select the body, the rest is the seed of the program. The
// last row of `calls` receives the number of times that the body was called.
#include "pto_arg_with_deps.h"
#include "pto_orchestration_api.h"

namespace {

enum Kernel { kScale = 0, kAdd = 1, kBlocks = 2, kLane = 3, kLaneOfCube = 4 };
enum Body {
  kRandom = 0,
  kReadsData = 1,
  kUsesOutside = 2,
  kCounts = 3,
  kHasPointer = 4,
  kReadsPlace = 5,
  kHasStruct = 6,
  kHasNoKey = 7
};

constexpr int kCalls = 12;
constexpr uint32_t kPart[] = {4, 16};

int calls = 0;
const ChipTensor* outside = nullptr;

struct Random {
  uint64_t state;
  uint32_t operator()(uint32_t end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33) % end;
  }
};

// A tensor that a task reads. If tasks also write it, readers count as writers, so that the result
// is the same with hazards "raw", which do not order a write after reads.
struct Source {
  const ChipTensor& tensor;
  bool is_written;

  void add_to(CoreTaskArgs& task) const {
    if (is_written) {
      task.add_inout(tensor);
    } else {
      task.add_input(tensor);
    }
  }
};

template <class Factor, class Summand>
void scale(const Source& from, const ChipTensor& to, const Factor& factor, const Summand& summand) {
  CoreTaskArgs task;
  from.add_to(task);
  task.add_inout(to);
  task.add_scalar(factor, summand);
  rt_submit_aiv_task(kScale, task);
}

TaskOutputTensors scaled(const Source& from, float factor, float initial) {
  TensorCreateInfo info(from.tensor.shapes, from.tensor.ndims);
  info.set_initial_value(initial);
  CoreTaskArgs task;
  from.add_to(task);
  task.add_output(info);
  task.add_scalar(factor, 1.0f);
  return rt_submit_aiv_task(kScale, task);
}

ChipTensor half(const ChipTensor& whole, uint32_t which) {
  const uint32_t shape[] = {4, 8};
  const uint32_t offsets[] = {0, 8 * which};
  return whole.view(shape, offsets);
}

void conditional(const Source& from, const ChipTensor& to, int32_t value, uint32_t element) {
  const uint32_t four[] = {4};
  TensorCreateInfo info(four, 1, DataType::INT32);
  info.set_initial_value(value);
  const TaskOutputTensors made = alloc_tensors(info);
  CoreTaskPredicate predicate;
  predicate.operand = {made.get_ref(0), 1, {element}};
  predicate.op = PredicateOp::GT;
  predicate.target = 0;
  CoreTaskArgs task;
  from.add_to(task);
  task.add_inout(to);
  task.add_scalar(0.25f, 3.0f);
  task.set_predicate(predicate);
  rt_submit_aiv_task(kScale, task);
}

void chained(const Source& from, const ChipTensor& to) {
  PTO2_SCOPE(PTO2ScopeMode::AUTO) {
    const TaskOutputTensors first = scaled(from, 0.5f, 0);
    CoreTaskArgs nothing;
    const PTO2TaskId gate = rt_submit_dummy_task(nothing).task_id();
    CoreTaskArgsWithDeps<4> second;
    second.add_input(first.get_ref(0));
    second.add_inout(to);
    second.add_scalar(-1.0f, 2.0f);
    second.add_dep(first.task_id(), gate);
    rt_submit_aiv_task(kScale, second);
  }
}

// The task in the MANUAL scope has only the edges that are stated.
void manual(const ChipTensor& from, const ChipTensor& to) {
  TensorCreateInfo info(from.shapes, from.ndims);
  const TaskOutputTensors made = alloc_tensors(info);
  PTO2TaskId id = PTO2TaskId::invalid();
  PTO2_SCOPE(PTO2ScopeMode::MANUAL) {
    CoreTaskArgsWithDeps<1> first;
    first.add_input(from);
    first.add_inout(made.get_ref(0));
    first.add_scalar(0.5f, 1.0f);
    first.add_dep(made.task_id());
    id = rt_submit_aiv_task(kScale, first).task_id();
  }
  CoreTaskArgsWithDeps<1> second;
  second.add_input(made.get_ref(0));
  second.add_inout(to);
  second.add_scalar(1.0f, -3.0f);
  second.add_dep(id);
  rt_submit_aiv_task(kScale, second);
}

void on_clusters(const ChipTensor& to, uint32_t blocks) {
  CoreTaskArgs task;
  task.add_inout(to);
  task.launch_spec.set_block_num(static_cast<int16_t>(blocks));
  rt_submit_task(MixedKernels{kLaneOfCube, kLane, kLane}, task);
}

void random_body(const GraphTaskArgs& args, uint64_t seed, uint32_t steps) {
  ++calls;
  Random random{seed};
  ChipTensor known[20] = {args.tensor(0).ref(), args.tensor(1).ref(), args.tensor(2).ref()};
  uint32_t count = 3;
  for (uint32_t step = 0; step < steps; ++step) {
    const uint32_t number = random(count);
    const Source from{known[number], number == 1 || number == 2};
    const ChipTensor& to = known[1 + random(2)];
    switch (random(10)) {
      case 0:
        known[count++] = scaled(from, 0.5f, 1).get_ref(0);
        break;
      case 1:
        scale(from, to, args.scalar(0), -1.5f);
        break;
      case 2: {
        const ChipTensor left = half(from.tensor, random(2));
        const ChipTensor right = half(to, random(2));
        scale({left, from.is_written}, right, 0.5f, args.scalar(0));
        break;
      }
      case 3: {
        CoreTaskArgs task;
        from.add_to(task);
        task.add_input(known[0]);
        task.add_inout(to);
        rt_submit_aic_task(kAdd, task);
        break;
      }
      case 4:
        if (args.scalar(1) != 0) scale(from, to, 0.125f, from_u64<float>(args.scalar(0)));
        break;
      case 5:
        conditional(from, to, static_cast<int32_t>(random(2)), random(4));
        break;
      case 6:
        chained(from, to);
        break;
      case 7:
        manual(known[0], to);
        break;
      case 8:
        on_clusters(to, 1 + random(3));
        break;
      default: {
        GraphTaskArgs inner;
        inner.add_inout(to);
        inner.add_scalar(args.scalar(0));
        rt_submit_graph(
            GRAPH_KEY("inner"),
            [](const GraphTaskArgs& of) {
              scale({of.tensor(0).ref(), true}, of.tensor(0).ref(), 0.5f, of.scalar(0));
            },
            inner);
      }
    }
  }
}

void other_body(const GraphTaskArgs& args, uint64_t kind, const float* pointer) {
  ++calls;
  const ChipTensor& to = args.tensor(1).ref();
  const uint32_t first[] = {0, 0};
  float number = 0.5f;
  if (kind == kReadsData) number = get_tensor_data<float>(to, 2, first) * 0.5f;
  if (kind == kCounts) number = static_cast<float>(calls % kCalls);
  if (kind == kReadsPlace) number = 0.01f * static_cast<float>(to.start_offset);
  if (pointer != nullptr) number = *pointer;
  const Source from{kind == kUsesOutside ? *outside : args.tensor(0).ref(), kind == kUsesOutside};
  scale(from, to, args.scalar(0), number);
}

struct Configuration {
  const float* number;
};

// Two bodies, of which only the second can be recorded.
void two_bodies(bool is_graph, const GraphTaskArgs& args) {
  const auto first = [](const GraphTaskArgs& of) {
    other_body(of, kReadsData, nullptr);
    --calls;
  };
  const auto second = [](const GraphTaskArgs& of) { other_body(of, kHasNoKey, nullptr); };
  if (is_graph) {
    rt_submit_graph(first, args);
    rt_submit_graph(second, args);
  } else {
    first(args);
    second(args);
  }
}

void call(bool is_graph, uint32_t kind, uint64_t seed, const GraphTaskArgs& args, float number) {
  if (kind == kHasNoKey) {
    two_bodies(is_graph, args);
  } else if (!is_graph) {
    PTO2_SCOPE() {
      if (kind == kRandom) random_body(args, seed, 12);
      const bool has_number = kind == kHasPointer || kind == kHasStruct;
      if (kind != kRandom) other_body(args, kind, has_number ? &number : nullptr);
    }
  } else if (kind == kRandom) {
    rt_submit_graph(GRAPH_KEY("random"), random_body, args, seed, uint32_t{12});
  } else if (kind == kHasPointer) {
    rt_submit_graph(other_body, args, uint64_t{kind}, static_cast<const float*>(&number));
  } else if (kind == kHasStruct) {
    rt_submit_graph(
        GRAPH_KEY("struct"),
        [](const GraphTaskArgs& of, const Configuration& config) {
          other_body(of, kHasStruct, config.number);
        },
        args, Configuration{&number});
  } else {
    rt_submit_graph(
        GRAPH_KEY("other"),
        [](const GraphTaskArgs& of, uint64_t body) { other_body(of, body, nullptr); }, args,
        uint64_t{kind});
  }
}

}  // namespace

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& given) {
  const ChipTensor& in = given.tensor(0).ref();
  const ChipTensor& out = given.tensor(1).ref();
  const uint64_t chosen = given.scalar(0);
  const auto kind = static_cast<uint32_t>(chosen >> 1 & 7);
  Random random{chosen >> 4};
  calls = 0;
  const ChipTensor more = scaled({in, false}, 1, 0).get_ref(0);
  for (int i = 0; i < kCalls; ++i) {
    const uint32_t rows[] = {random(5), 0};
    const uint32_t others[] = {random(5), 0};
    const ChipTensor from = in.view(kPart, rows);
    const ChipTensor to = (random(3) == 0 ? more : out).view(kPart, others);
    const ChipTensor last = (random(2) == 0 ? more : out).view(kPart, rows);
    const ChipTensor other = more.view(kPart, others);
    outside = &other;
    GraphTaskArgs args;
    args.add_input(from);
    args.add_inout(to, last);
    const float number = 0.25f * static_cast<float>(1 + random(7));
    args.add_scalar(number, random(2));
    call((chosen & 1) != 0, kind, chosen >> 4, args, number);
  }
  CoreTaskArgs sum;
  sum.add_input(more);
  sum.add_inout(out);
  sum.add_scalar(0.5f, 0.0f);
  rt_submit_aiv_task(kScale, sum);
  const ChipTensor& count = given.tensor(2).ref();
  CoreTaskArgs last;
  last.add_input(in);
  last.add_inout(count);
  last.add_scalar(0.0f, static_cast<float>(calls));
  rt_submit_aiv_task(kScale, last);
}
