// A llama.cpp of cells and positions: the part of its API that adapters/llama.h uses, found there by its arguments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace fake {

enum class Op { rope, set_rows, soft_max };
enum class Type { f32, f16, q8_0, i32, i64 };
inline const char* ggml_op_name(Op op) {
  return op == Op::rope ? "ROPE" : op == Op::set_rows ? "SET_ROWS" : "SOFT_MAX";
}
inline const char* ggml_type_name(Type t) {
  const char* names[] = {"f32", "f16", "q8_0", "i32", "i64"};
  return names[static_cast<int>(t)];
}
inline bool ggml_is_quantized(Type t) { return t == Type::q8_0; }

struct Tensor {
  std::string title;
  Op op;
  Type type;
  std::int64_t ne[4];
  std::size_t nb[4];
  std::vector<std::uint8_t> bytes;
  Tensor* src[2];
  const char* name;
};
inline void ggml_backend_tensor_get(const Tensor* t, void* out, std::size_t offset, std::size_t size) {
  if (offset + size > t->bytes.size()) std::abort();
  std::memcpy(out, t->bytes.data() + offset, size);
}

enum class Flash { disabled, enabled };
struct Params {
  std::uint32_t n_seq_max = 1;
  Type type_v = Type::f16;
  Flash flash_attn_type = Flash::enabled;
  bool (*cb_eval)(Tensor*, bool, void*) = nullptr;
  void* cb_eval_user_data = nullptr;
};

struct Model {
  bool recurrent = false, hybrid = false;
  int swa = 0;
};
struct Batch {
  int n_tokens;
  int first = -1;   // its first position, -1: the next
  int stored = -1;  // tokens that are stored before the call is aborted; -1: it is not
};

struct Cell {
  int position = -1;  // -1: empty
  int rotated = 0;    // the position that its key is rotated to
};

struct Context {
  Params params;
  Model model;
  int n_ctx = 64, n_batch = 64, ubatch = 8, layers = 2, heads = 3;
  bool can_shift = true;
  std::string without;  // a node that its graph does not have
  int ghost = -1;       // a column that gets attention though nothing is there
  int spoilt = -1;      // a position whose query gives NaN in the first head of the first layer
  std::vector<Cell> cells = std::vector<Cell>(64);
  std::vector<std::string> log;  // of removals and shifts
  int head = 0;                  // where the search for cells begins

  int last() const {
    int p = -1;
    for (const Cell& c : cells) p = std::max(p, c.position);
    return p;
  }
  int used() const {
    return static_cast<int>(std::count_if(cells.begin(), cells.end(), [](const Cell& c) { return c.position >= 0; }));
  }
};
using Memory = Context;

/// What the query at position q gives the key that is rotated to k, before division; in eighths, so that sums are
/// exact.
inline float weight(int layer, int head, int q, int k) {
  return static_cast<float>((q * 7 + k * (5 + head) + (k % 11) * layer + head * 3) % 29 + 1) / 8;
}

inline void show(const Context& c, Tensor t, Tensor* source = nullptr) {
  if (c.params.cb_eval == nullptr || (!c.without.empty() && t.title.find(c.without) == 0)) return;
  t.name = t.title.c_str();
  t.src[0] = nullptr;
  t.src[1] = source;
  void* self = c.params.cb_eval_user_data;
  if (c.params.cb_eval(&t, true, self) && !c.params.cb_eval(&t, false, self)) std::abort();
}
template <class T>
Tensor tensor(const char* title, Op op, Type type, const std::vector<T>& values, std::int64_t a, std::int64_t b = 1,
              std::int64_t heads = 1) {
  Tensor t{title, op, type, {a, b, heads, 1}, {sizeof(T)}, {}, {}, nullptr};
  for (int i = 1; i < 4; ++i) t.nb[i] = t.nb[i - 1] * static_cast<std::size_t>(t.ne[i - 1]);
  t.bytes.resize(values.size() * sizeof(T));
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

inline void compute(Context& c, const std::vector<std::int64_t>& at, const std::vector<std::int32_t>& positions) {
  const auto n = static_cast<std::int64_t>(at.size());
  Tensor indices = tensor("", Op::rope, Type::i64, at, n), places = tensor("", Op::rope, Type::i32, positions, n);
  int top = 0;
  for (int i = 0; i < c.n_ctx; ++i)
    if (c.cells[static_cast<std::size_t>(i)].position >= 0) top = i + 1;
  const int columns = std::min((top + 15) / 16 * 16, c.n_ctx);                   // padded
  show(c, tensor("Qcur-0", Op::soft_max, Type::f32, std::vector<float>(1), 1));  // a name alone says nothing
  show(c, tensor("Qcur-0", Op::rope, Type::f32, std::vector<float>(1), 1), &places);
  show(c, tensor("cache_k_l0 (view)", Op::set_rows, Type::f32, std::vector<float>(1), 1), &indices);
  if (c.params.flash_attn_type == Flash::enabled) return;
  for (int layer = 0; layer < c.layers; ++layer) {
    std::vector<float> p;
    for (int h = 0; h < c.heads; ++h)
      for (std::int32_t q : positions)
        for (int i = 0; i < columns; ++i) {
          const Cell& cell = c.cells[static_cast<std::size_t>(i)];
          const bool seen = cell.position >= 0 && cell.position <= q;
          p.push_back(layer + h == 0 && q == c.spoilt ? std::nanf("")
                      : seen                          ? weight(layer, h, q, cell.rotated)
                      : i == c.ghost                  ? 1.f
                                                      : 0.f);
        }
    const std::string title = "kq_soft_max-" + std::to_string(layer);
    show(c, tensor(title.c_str(), Op::soft_max, Type::f32, p, columns, n, c.heads));
  }
}

inline int llama_decode(Context* c, const Batch& batch) {
  const int first = batch.first >= 0 ? batch.first : c->last() + 1;
  for (Cell& cell : c->cells)
    if (cell.position >= 0 && cell.rotated != cell.position) {
      cell.rotated = cell.position;
      show(*c, tensor("cache_k_l0 (view)", Op::rope, Type::f32, std::vector<float>(1), 1));  // the graph of the shift
    }
  if (c->used() + batch.n_tokens > c->n_ctx) return 1;
  for (int t = 0; t < batch.n_tokens;) {
    std::vector<std::int64_t> at;
    std::vector<std::int32_t> positions;
    for (; t < batch.n_tokens && static_cast<int>(at.size()) < c->ubatch; ++t) {
      if (t == batch.stored) return 2;
      while (c->cells[static_cast<std::size_t>(c->head % c->n_ctx)].position >= 0) ++c->head;
      c->head %= c->n_ctx;
      c->cells[static_cast<std::size_t>(c->head)] = {first + t, first + t};
      at.push_back(c->head);
      positions.push_back(first + t);
    }
    compute(*c, at, positions);
  }
  return 0;
}

inline const Model* llama_get_model(const Context* c) { return &c->model; }
inline bool llama_model_is_recurrent(const Model* m) { return m->recurrent; }
inline bool llama_model_is_hybrid(const Model* m) { return m->hybrid; }
inline int llama_model_n_swa(const Model* m) { return m->swa; }
inline std::uint32_t llama_n_ctx(const Context* c) { return static_cast<std::uint32_t>(c->n_ctx); }
inline std::uint32_t llama_n_batch(const Context* c) { return static_cast<std::uint32_t>(c->n_batch); }
inline std::uint32_t llama_n_seq_max(const Context* c) { return c->params.n_seq_max; }
inline Memory* llama_get_memory(Context* c) { return c; }
inline bool llama_memory_can_shift(Memory* m) { return m->can_shift; }
inline int llama_memory_seq_pos_max(Memory* m, int) { return m->last(); }

inline void llama_memory_clear(Memory* m, bool) {
  for (Cell& c : m->cells) c = {};
  m->head = 0;
}
inline bool llama_memory_seq_rm(Memory* m, int, int p0, int p1) {
  m->log.push_back("rm " + std::to_string(p0) + " " + std::to_string(p1));
  for (Cell& c : m->cells)
    if (c.position >= p0 && (p1 < 0 || c.position < p1)) c = {};
  return true;
}
inline void llama_memory_seq_add(Memory* m, int, int p0, int p1, int by) {
  m->log.push_back("add " + std::to_string(p0) + " " + std::to_string(p1) + " " + std::to_string(by));
  for (Cell& c : m->cells)
    if (c.position >= p0 && (p1 < 0 || c.position < p1)) c.position += by;
}

/// Of the used cells in order their positions and keys as they are: a shift that is pending is lost.
inline std::size_t llama_state_seq_get_size(Context* c, int) { return static_cast<std::size_t>(c->used()) * 8; }
inline std::size_t llama_state_seq_get_data(Context* c, std::uint8_t* out, std::size_t size, int) {
  std::vector<std::int32_t> all;
  for (const Cell& cell : c->cells)
    if (cell.position >= 0) all.insert(all.end(), {cell.position, cell.rotated});
  if (all.size() * 4 > size) return 0;
  std::memcpy(out, all.data(), all.size() * 4);
  return all.size() * 4;
}
inline std::size_t llama_state_seq_set_data(Context* c, const std::uint8_t* in, std::size_t size, int) {
  for (std::size_t i = 0; i < size; i += 8) {
    Cell cell;
    std::memcpy(&cell, in + i, 8);
    c->cells[static_cast<std::size_t>(c->head++)] = cell;
  }
  return size;
}

}  // namespace fake
