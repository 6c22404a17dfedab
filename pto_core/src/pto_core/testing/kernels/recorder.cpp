// Record when a task ran and its arguments.
//
// args: 0 = log, 1 = index of the task's record, 2 = words to sum up or 0, 3 = count of words,
// 4... = the words themselves where args[2] is 0. The log is one clock (in a cache line of its own)
// and a record per task. The clock ticks at the start and at the end of every task, so "a ended
// before b started" is one comparison, on any core.
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
  const int64_t* words = args[2] != 0 ? reinterpret_cast<const int64_t*>(args[2]) : args + 4;
  uint64_t sum = 0;
  for (int64_t i = 0; i < args[3]; ++i) sum = sum * 31 + static_cast<uint64_t>(words[i]);
  record.sum = sum;
  record.end = tick(log);
}
