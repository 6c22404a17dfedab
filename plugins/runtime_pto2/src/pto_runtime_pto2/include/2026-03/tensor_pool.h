// The memory for the tensors of one run of an orchestration.
//
// All copies of one Tensor share a node. Nodes are reference-counted and are allocated from aligned
// chunks. The node that was freed last is reused first, so that a loop that creates and drops
// tensors uses few cache lines. Only the thread that runs the orchestration uses the pool and its
// nodes.
//
// A pool lives longer than its run if tensors still exist, such as static ones. It then reports no
// errors.
#ifndef PTO2_TENSOR_POOL_H
#define PTO2_TENSOR_POOL_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "tensor_data.h"

namespace pto_orchestration {

struct TensorNode {
  TensorData data;
  TensorNode* root;  // the node with the buffer's address and owner; null if this node has them
  // number of handles that refer to this node, and of nodes whose root is this node
  uint32_t references;
  uint32_t is_permuted : 8;
  uint32_t index : 24;  // number of the node in its pool, from 0; it wraps around at 2^24
};
static_assert(sizeof(TensorNode) == 192, "three cache lines");

// The function that receives usage errors. `what` is the text; `file` and `line` are the position
// of the call in the user's program.
using ReportError = void (*)(void* context, const char* what, const char* file, int32_t line);

class TensorPool {
 public:
  // Create a pool; return null if memory is exhausted. end() deletes the pool.
  static TensorPool* create(ReportError report, void* context) {
    return new (std::nothrow) TensorPool(report, context);
  }

  // Called when the run is over. Deletes the pool at once if it has no tensors, otherwise when its
  // last tensor is released.
  void end() {
    report_ = nullptr;
    if (live_ == 0) destroy();
  }

  // Return a node with one reference and undefined other members; null if memory is exhausted.
  TensorNode* allocate() {
    TensorNode* node = free_;
    if (node != nullptr) {
      free_ = node->root;
    } else if ((node = cut()) == nullptr) {
      return nullptr;
    }
    ++live_;
    node->references = 1;
    return node;
  }

  static void add_reference(TensorNode* node) {
    if (node != nullptr) ++node->references;
  }
  static void drop_reference(TensorNode* node) {
    if (node != nullptr && --node->references == 0) release(node);
  }

  static TensorPool* of(TensorNode* node) { return chunk_of(node)->pool; }

  void report(const char* what, const char* file, int32_t line) {
    if (report_ != nullptr) report_(context_, what, file, line);
  }

  uint64_t live() const { return live_; }
  uint64_t chunks() const { return chunk_count_; }

 private:
  static constexpr size_t kChunkBytes = 32768;

  struct alignas(64) Chunk {
    TensorPool* pool;
    Chunk* next;
  };

  TensorPool(ReportError report, void* context) : report_(report), context_(context) {}

  static Chunk* chunk_of(TensorNode* node) {
    return reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(node) & ~(kChunkBytes - 1));
  }

  TensorNode* cut() {
    if (next_ == end_ && !grow()) return nullptr;
    next_->index = node_count_++ & 0xffffff;
    return next_++;
  }

  __attribute__((noinline)) bool grow() {
    void* memory = std::aligned_alloc(kChunkBytes, kChunkBytes);
    if (memory == nullptr) return false;
    Chunk* chunk = static_cast<Chunk*>(memory);
    chunk->pool = this;
    chunk->next = chunks_;
    chunks_ = chunk;
    ++chunk_count_;
    next_ = reinterpret_cast<TensorNode*>(chunk + 1);
    end_ = next_ + (kChunkBytes - sizeof(Chunk)) / sizeof(TensorNode);
    return true;
  }

  static void release(TensorNode* node) {
    TensorPool* pool = of(node);
    TensorNode* root = node->root;
    node->root = pool->free_;
    pool->free_ = node;
    --pool->live_;
    if (root != nullptr) {
      drop_reference(root);  // a root has no root, so the recursion ends here
    } else if (pool->live_ == 0 && pool->report_ == nullptr) {
      pool->destroy();
    }
  }

  void destroy() {
    while (chunks_ != nullptr) {
      Chunk* next = chunks_->next;
      std::free(chunks_);
      chunks_ = next;
    }
    delete this;
  }

  ReportError report_;
  void* context_;
  TensorNode* free_ = nullptr;  // linked by `root`
  TensorNode* next_ = nullptr;  // the next node of the newest chunk that was never used
  TensorNode* end_ = nullptr;
  Chunk* chunks_ = nullptr;
  uint64_t live_ = 0;
  uint32_t node_count_ = 0;
  uint64_t chunk_count_ = 0;
};

// The pool of the run, set while an orchestration runs. Each device loads its own copy of an
// orchestration's library and has one run at a time, so the variable need not be thread-local.
inline TensorPool* current_pool = nullptr;

}  // namespace pto_orchestration

#endif
