#include "errors.hpp"
#include "graph.hpp"
#include "run.hpp"

namespace pto::core {
namespace {

// A scope of a graph as a context manager. The scope also ends if the block raises.
struct Scope {
  nb::object graph;

  void begin() { nb::cast<Graph&>(graph).scope_begin(); }
  void end(nb::handle kind) {
    Graph& rt = nb::cast<Graph&>(graph);
    if (!rt.scope_end() && kind.is_none()) rt.raise_latched();
  }
};

// A cluster that is allocated during a block.
struct HeldCluster {
  nb::object graph;
  nb::object cluster = nb::none();

  nb::object allocate() { return cluster = nb::int_(nb::cast<Graph&>(graph).allocate_cluster()); }
  void free(nb::handle kind) {
    Graph& rt = nb::cast<Graph&>(graph);
    if (!rt.free_cluster(cluster) && kind.is_none()) rt.raise_latched();
  }
};

template <bool kIsBlock>
PyObject* submit(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  try {
    Graph& graph = *nb::inst_ptr<Graph>(self);
    return PyLong_FromLongLong(
        graph.submit(arguments, static_cast<size_t>(count), names, kIsBlock));
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// These methods use the C API directly: they are called once per task, and a binding by nanobind
// would allocate a tuple or a dictionary.
PyMethodDef graph_methods[] = {
    {"submit", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&submit<false>)),
     METH_FASTCALL | METH_KEYWORDS,
     "submit($self, task, /, *args, cluster=None, after=())\n--\n\n"
     "Submit a task and return its id.\n\n"
     "`task`: a @kernel, a CoreCallable, or the func_id of a child of the chip. `args`: device "
     "arrays, their views, and scalars. The direction of each array comes from the kernel's "
     "annotation or signature, or from the call: In(a), Out(b). `cluster`: the task runs on that "
     "cluster only. `after`: ids of additional tasks that it waits for. The call waits while a "
     "ring is full."},
    {"submit_block", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&submit<true>)),
     METH_FASTCALL | METH_KEYWORDS,
     "submit_block($self, task, /, *args, block_dim, clusters=None, after=())\n--\n\n"
     "Submit `block_dim` tasks that differ in their block number; return the id of the first.\n\n"
     "The kernel receives two additional arguments at the end: block_dim and its block number. "
     "`clusters`: one cluster for each block."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot graph_slots[] = {{Py_tp_methods, graph_methods}, {0, nullptr}};

void bind_edges(nb::class_<Graph>& bound) {
  bound
      .def("add_task", &Graph::add_task, nb::arg("kernel").none(), nb::arg("args").none(),
           nb::sig("def add_task(self, kernel: object, args: tuple[typing.Any, ...] | "
                   "list[typing.Any]) -> int"),
           "Add a task of `kernel` (a @kernel, a CoreCallable, or the func_id of a child of the "
           "chip) with device arrays and scalars; return its id. For the build-graph runtimes.")
      .def("add_successor", &Graph::add_successor, nb::arg("producer").none(),
           nb::arg("consumer").none(),
           nb::sig("def add_successor(self, producer: int, consumer: int) -> None"),
           "Make task `consumer` wait for the completion of task `producer`.")
      .def("publish", &Graph::publish, nb::arg("task").none(),
           nb::sig("def publish(self, task: int) -> None"),
           "Publish a task for scheduling; all edges into it must have been added. If the host "
           "builds the graph, the end of the orchestration publishes all tasks.")
      .def("empty", &Graph::empty, nb::arg("shape").none(), nb::arg("dtype").none(),
           nb::sig("def empty(self, shape: int | collections.abc.Sequence[int], dtype: "
                   "numpy.typing.DTypeLike) -> DeviceArray"),
           "Allocate device memory that the framework frees when the run ends.");
}

void bind_tensors(nb::class_<Graph>& bound) {
  bound
      .def("tensor", &Graph::tensor, nb::arg("shape").none(), nb::arg("dtype").none(),
           nb::sig("def tensor(self, shape: int | collections.abc.Sequence[int], dtype: "
                   "numpy.typing.DTypeLike) -> DeviceArray"),
           "Return an intermediate tensor. Its memory is allocated from the scope's heap ring at "
           "the first submit with it as Out, and released when its scope has ended and all its "
           "readers have completed.")
      .def("pipe", &Graph::pipe, nb::sig("def pipe(self) -> DeviceArray"),
           "Return a tensor without memory that only orders tasks, for data that kernels exchange "
           "inside a cluster. A Python kernel receives None for it.")
      .def("add_dep", &Graph::add_dep, nb::arg("producer").none(), nb::arg("consumer").none(),
           nb::sig("def add_dep(self, producer: int, consumer: int) -> None"),
           "Make `consumer`, the last submitted task, also wait for `producer`.")
      .def(
          "scope",
          [](nb::handle_t<Graph> self) {
            nb::inst_ptr<Graph>(self)->require(PTO_RUNTIME_SCOPES, "scopes", "remove rt.scope()");
            return Scope{nb::borrow(self)};
          },
          nb::sig("def scope(self) -> Scope"),
          "Return a context manager. Tasks that are submitted in the block release their memory "
          "and slots independently of other tasks.");
}

void bind_clusters(nb::class_<Graph>& bound) {
  bound
      .def("allocate_cluster", &Graph::allocate_cluster,
           nb::sig("def allocate_cluster(self) -> int"),
           "Allocate a cluster of cores (one AIC, two AIV) for tasks with cluster=. May wait.")
      .def(
          "free_cluster",
          [](Graph& self, nb::handle cluster) {
            if (!self.free_cluster(cluster)) self.raise_latched();
          },
          nb::arg("cluster").none(), nb::sig("def free_cluster(self, cluster: int) -> None"),
          "Release a cluster. It becomes free when its last task has completed. Never waits.")
      .def(
          "cluster", [](nb::handle_t<Graph> self) { return HeldCluster{nb::borrow(self)}; },
          nb::sig("def cluster(self) -> HeldCluster"),
          "Return a context manager that allocates and releases a cluster: "
          "`with rt.cluster() as cluster:`.");
}

}  // namespace

void bind_graph(nb::module_& module) {
  nb::class_<Scope>(module, "Scope", "The context manager that rt.scope() returns.")
      .def(
          "__enter__", [](Scope& self) { self.begin(); }, nb::sig("def __enter__(self) -> None"))
      .def(
          "__exit__", [](Scope& self, nb::handle kind, nb::handle, nb::handle) { self.end(kind); },
          nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none(),
          nb::sig("def __exit__(self, kind: object, error: object, trace: object) -> None"));
  nb::class_<HeldCluster>(module, "HeldCluster", "The context manager that rt.cluster() returns.")
      .def("__enter__", &HeldCluster::allocate, nb::sig("def __enter__(self) -> int"))
      .def(
          "__exit__",
          [](HeldCluster& self, nb::handle kind, nb::handle, nb::handle) { self.free(kind); },
          nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none(),
          nb::sig("def __exit__(self, kind: object, error: object, trace: object) -> None"));
  nb::class_<Graph> bound(
      module, "Graph", nb::type_slots(graph_slots),
      "The task graph that an orchestration builds, valid during its run only.");
  bind_edges(bound);
  bind_tensors(bound);
  bind_clusters(bound);
}

}  // namespace pto::core
