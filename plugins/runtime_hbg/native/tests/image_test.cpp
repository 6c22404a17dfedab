// Graphs that one instance exports and another one imports: the results must have the same bytes,
// and damaged images must be refused.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "device.hpp"
#include "random_graph.hpp"

namespace {

constexpr size_t kMostTasks = 5000;
constexpr size_t kMostInputs = 20;
constexpr size_t kHeaderBytes = 32;
constexpr size_t kHashAt = 24;

// The results of the tasks, which other processes see too.
uint64_t* results() {
  static void* const memory = mmap(nullptr, kMostTasks * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<uint64_t*>(memory);
}

// A device whose kernels write to args[0] a number that depends on all other arguments.
class Side {
 public:
  Side() {
    for (const int32_t type : {PTO_CORE_AIC, PTO_CORE_AIV}) {
      device.add_kernel(type, type, [](const pto_payload& payload) {
        const auto* args = reinterpret_cast<const uint64_t*>(&payload + 1);
        uint64_t sum = payload.task + 1;
        for (uint32_t i = 1; i < payload.num_args; ++i) {
          sum = sum * 31 + *reinterpret_cast<const uint64_t*>(args[i]);
        }
        *reinterpret_cast<uint64_t*>(args[0]) = sum;
        return 0;
      });
    }
  }

  pto_status run(const std::vector<char>& image) {
    // A block of exactly this size, so that a sanitizer sees each access beyond its end.
    const std::unique_ptr<char[]> bytes(new char[image.size()]);
    if (!image.empty()) std::memcpy(bytes.get(), image.data(), image.size());
    return device.run([&] {
      device.api().import_graph(device.runtime(), bytes.get(), image.size());
      return 0;
    });
  }

  TestDevice device{"host_build_graph"};
};

int build(TestDevice& device, const RandomGraph& graph) {
  std::vector<std::vector<uint64_t>> args(static_cast<size_t>(graph.tasks));
  const auto address = [](int task) { return reinterpret_cast<uint64_t>(results() + task); };
  for (int task = 0; task < graph.tasks; ++task) {
    args[static_cast<size_t>(task)].push_back(address(task));
  }
  for (const auto& [from, to] : graph.edges) {
    std::vector<uint64_t>& inputs = args[static_cast<size_t>(to)];
    if (inputs.size() <= kMostInputs) inputs.push_back(address(from));
  }
  for (int task = 0; task < graph.tasks; ++task) {
    device.add_task(graph.core_types[static_cast<size_t>(task)], args[static_cast<size_t>(task)]);
  }
  for (const auto& [from, to] : graph.edges) device.add_edge(from, to);
  return 0;
}

std::vector<uint64_t> taken(const RandomGraph& graph) {
  std::vector<uint64_t> values(results(), results() + graph.tasks);
  std::memset(results(), 0, kMostTasks * sizeof(uint64_t));
  return values;
}

// Builds the graph and exports it in place of running it.
std::vector<char> exported(const RandomGraph& graph) {
  Side side;
  std::vector<char> image;
  side.device.run([&] {
    build(side.device, graph);
    const pto_runtime_api& api = side.device.api();
    api.orchestration_done(side.device.runtime(), 0);
    image.resize(api.export_graph(side.device.runtime(), nullptr, 0));
    CHECK_EQUAL(api.export_graph(side.device.runtime(), image.data(), image.size()), image.size());
    const pto_error stop{PTO_ERROR_ABORTED, -1, -1, -1, -1, -1, 0, 0, {}, "exported", {}, 0, 0};
    api.abort(side.device.runtime(), &stop);
    CHECK_EQUAL(api.export_graph(side.device.runtime(), image.data(), image.size()), size_t{0});
    return 0;
  });
  return image;
}

RandomGraph random_graph(uint64_t seed) {
  std::mt19937_64 random(seed);
  return RandomGraph::make(random, seed % 10 == 0 ? static_cast<int>(kMostTasks) : 100);
}

// Writes the hash of the changed content, so that the reader examines it.
void write_hash(std::vector<char>& image) {
  uint64_t tasks;
  std::memcpy(&tasks, &image[16], sizeof tasks);
  uint64_t hash = 0xCBF29CE484222325u + tasks;
  for (size_t at = kHeaderBytes; at + 8 <= image.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, &image[at], sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  std::memcpy(&image[kHashAt], &hash, sizeof hash);
}

const RandomGraph kSmall{6, {{0, 1}, {1, 2}, {0, 3}, {0, 3}, {3, 5}, {4, 5}}, {0, 1, 0, 1, 0, 1}};

}  // namespace

TEST(an_imported_graph_gives_the_bytes_of_its_original) {
  Side direct;
  Side side;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RandomGraph graph = random_graph(seed);
    CHECK_EQUAL(direct.device.run([&] { return build(direct.device, graph); }), PTO_OK);
    const std::vector<uint64_t> expected = taken(graph);
    const std::vector<char> image = exported(graph);
    CHECK(taken(graph) == std::vector<uint64_t>(static_cast<size_t>(graph.tasks)));
    const pto_status status = side.run(image);
    if (status != PTO_OK) check::fail(__FILE__, __LINE__, side.device.error().message);
    CHECK(taken(graph) == expected);
    CHECK_EQUAL(side.device.statistic("edges"), graph.edges.size());
  }
}

TEST(an_imported_graph_runs_in_another_process) {
  const RandomGraph graph = random_graph(10);
  int pipe_ends[2];
  CHECK_EQUAL(pipe(pipe_ends), 0);
  results();
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[1]);
    std::vector<char> image;
    char part[4096];
    for (ssize_t count; (count = read(pipe_ends[0], part, sizeof part)) > 0;) {
      image.insert(image.end(), part, part + count);
    }
    Side side;
    _exit(side.run(image) == PTO_OK ? 0 : 1);
  }
  close(pipe_ends[0]);
  const std::vector<char> image = exported(graph);
  for (size_t done = 0; done < image.size();) {
    const ssize_t count = write(pipe_ends[1], image.data() + done, image.size() - done);
    CHECK(count > 0);
    done += static_cast<size_t>(count);
  }
  close(pipe_ends[1]);
  int status = -1;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  const std::vector<uint64_t> from_child = taken(graph);
  Side direct;
  CHECK_EQUAL(direct.device.run([&] { return build(direct.device, graph); }), PTO_OK);
  CHECK(from_child == taken(graph));
}

TEST(a_cycle_in_an_image_is_found) {
  const RandomGraph forward{2, {{0, 1}}, {PTO_CORE_AIV, PTO_CORE_AIV}};
  std::vector<char> image = exported(forward);
  // Task 1 gets the successor 0: its list has one entry, and the image 8 bytes more.
  const size_t second = kHeaderBytes + 16 + 48 + 8;
  const uint32_t one = 1;
  std::memcpy(&image[second + 8], &one, sizeof one);
  image.resize(image.size() + 8, 0);
  const uint64_t bytes = image.size();
  std::memcpy(&image[8], &bytes, sizeof bytes);
  write_hash(image);
  Side side;
  CHECK_EQUAL(side.run(image), PTO_ERROR_CYCLE);
}

TEST(a_truncated_image_is_refused) {
  const std::vector<char> whole = exported(kSmall);
  Side side;
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    CHECK_EQUAL(side.run(part), PTO_ERROR_USAGE);
  }
  CHECK_EQUAL(side.run(whole), PTO_OK);
  CHECK_EQUAL(side.device.statistic("tasks"), 6u);
}

TEST(a_changed_image_is_refused) {
  const std::vector<char> whole = exported(kSmall);
  Side side;
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::vector<char> image = whole;
    image[random() % image.size()] ^= static_cast<char>(1u << random() % 8);
    CHECK_EQUAL(side.run(image), PTO_ERROR_USAGE);
    CHECK_CONTAINS(side.device.error().message, "image of");
  }
  for (int round = 0; round < 500; ++round) {
    std::vector<char> noise(random() % 400);
    for (char& byte : noise) byte = static_cast<char>(random());
    CHECK_EQUAL(side.run(noise), PTO_ERROR_USAGE);
  }
}

TEST(an_image_of_another_version_is_refused_with_both_versions) {
  std::vector<char> image = exported(kSmall);
  uint32_t version;
  std::memcpy(&version, &image[4], sizeof version);
  image[4] = static_cast<char>(version + 1);
  Side side;
  CHECK_EQUAL(side.run(image), PTO_ERROR_USAGE);
  CHECK_EQUAL(side.device.error().value, uint64_t{version} + 1);
  CHECK_EQUAL(side.device.error().limit, uint64_t{version});
  CHECK_CONTAINS(side.device.error().message,
                 ("has version " + std::to_string(version + 1)).c_str());
  CHECK_CONTAINS(side.device.error().message, "from the same release");
  image[4] = static_cast<char>(version);
  CHECK_EQUAL(side.run(image), PTO_OK);
}

TEST(an_image_of_tasks_without_their_kernel_is_refused) {
  const std::vector<char> image = exported(kSmall);
  TestDevice device{"host_build_graph"};
  CHECK_EQUAL(device.run([&] {
    device.api().import_graph(device.runtime(), image.data(), image.size());
    return 0;
  }),
              PTO_ERROR_USAGE);
  CHECK_CONTAINS(device.error().message, "no kernel is registered");
}

// The reader must not rely on the hash. Kernels and arguments keep their values, because the reader
// cannot check them.
TEST(wrong_structures_with_a_right_hash_never_crash) {
  const RandomGraph graph{6, {{0, 1}, {2, 1}, {3, 1}, {4, 5}, {4, 0}}, {0, 1, 0, 1, 0, 1}};
  const std::vector<char> whole = exported(graph);
  Side side;
  std::mt19937_64 random(2);
  std::vector<size_t> places;  // headers of the image and of its tasks, ids, and successors
  for (size_t at = 0; at < kHashAt; ++at) places.push_back(at);
  for (size_t at = kHeaderBytes; at + 56 <= whole.size();) {
    uint32_t payload_bytes;
    uint32_t successors;
    std::memcpy(&payload_bytes, &whole[at], 4);
    std::memcpy(&successors, &whole[at + 8], 4);
    for (size_t i = 0; i < 16; ++i) places.push_back(at + i);
    for (size_t i = 24; i < 32; ++i) places.push_back(at + i);  // the task's id
    for (size_t i = 44; i < 48; ++i) places.push_back(at + i);  // the number of arguments
    const size_t list = at + 16 + payload_bytes;
    at = list + (successors * 4 + 7) / 8 * 8;
    for (size_t i = list; i < at; ++i) places.push_back(i);
  }
  uint64_t refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<char> image = whole;
    image[places[random() % places.size()]] = static_cast<char>(random());
    write_hash(image);
    refused += side.run(image) != PTO_OK;
  }
  CHECK(refused > 5000);
}

int main(int argc, char** argv) {
  return check::run_all(argc, argv);
}
