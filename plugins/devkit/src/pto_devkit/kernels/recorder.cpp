// Record the time at which a task ran, and its arguments.
//
// args: 0 = log, 1 = index of the task's record, 2 = address of values to add up, or 0, 3 = number
// of values, 4... = the values themselves if args[2] is 0. The log consists of one clock (in its
// own cache line) and a record for each task. Every task advances the clock at its start and at its
// end, so the order of two tasks on any cores can be compared.
#include <cstdint>

namespace {

struct Record {
  uint64_t runs;
  uint64_t start;
  uint64_t end;
  uint64_t sum;
};

struct Log {
  uint64_t clock;
  uint64_t pad[7];
  Record records[1];
};

uint64_t tick(Log* log) {
  return __atomic_add_fetch(&log->clock, 1, __ATOMIC_SEQ_CST);
}

}  // namespace

extern "C" void kernel_entry(int64_t* args) {
  Log* log = reinterpret_cast<Log*>(args[0]);
  Record& record = log->records[args[1]];
  __atomic_add_fetch(&record.runs, 1, __ATOMIC_RELAXED);
  record.start = tick(log);
  const int64_t* values = args[2] != 0 ? reinterpret_cast<const int64_t*>(args[2]) : args + 4;
  uint64_t sum = 0;
  for (int64_t i = 0; i < args[3]; ++i) sum = sum * 31 + static_cast<uint64_t>(values[i]);
  record.sum = sum;
  record.end = tick(log);
}
