// A llama.cpp of cells and positions: the part of its API that the llama adapter uses, found there by its arguments.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace fake {

enum class Op { none, reshape, view, rope, concat, mul_mat, set_rows, soft_max };
enum class Type { f32, f16, q8_0, i32, i64 };
inline const char* ggml_op_name(Op op) {
  const char* names[] = {"NONE", "RESHAPE", "VIEW", "ROPE", "CONCAT", "MUL_MAT", "SET_ROWS", "SOFT_MAX"};
  return names[static_cast<int>(op)];
}
inline const char* ggml_type_name(Type t) {
  const char* names[] = {"f32", "f16", "q8_0", "i32", "i64"};
  return names[static_cast<int>(t)];
}
inline bool ggml_is_quantized(Type t) { return t == Type::q8_0; }

/// 32 codes and their scale.
struct Block {
  float scale;
  std::int8_t codes[32];
};
inline std::size_t row_size(Type t, std::int64_t numbers) {
  const auto n = static_cast<std::size_t>(numbers);
  return t == Type::f32 || t == Type::i32 ? n * 4
         : t == Type::f16                 ? n * 2
         : t == Type::i64                 ? n * 8
                                          : n / 32 * sizeof(Block);
}
inline void half_to_float(const void* from, float* to, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<const Eigen::half*>(from)[i]);
}
inline void blocks_to_float(const void* from, float* to, std::int64_t n) {
  const Block* blocks = static_cast<const Block*>(from);
  for (std::int64_t i = 0; i < n; ++i) to[i] = blocks[i / 32].scale * static_cast<float>(blocks[i / 32].codes[i % 32]);
}
struct Traits {
  void (*to_float)(const void*, float*, std::int64_t);
};
inline const Traits* ggml_get_type_traits(Type t) {
  static const Traits none{nullptr}, half{half_to_float}, blocks{blocks_to_float};
  return t == Type::f16 ? &half : t == Type::q8_0 ? &blocks : &none;
}
inline void store(Type t, const std::vector<float>& row, std::uint8_t* to) {
  if (t == Type::f32) std::memcpy(to, row.data(), row.size() * 4);
  for (std::size_t i = 0; t == Type::f16 && i < row.size(); ++i)
    reinterpret_cast<Eigen::half*>(to)[i] = Eigen::half(row[i]);
  for (std::size_t b = 0; t == Type::q8_0 && b < row.size() / 32; ++b) {
    Block& block = reinterpret_cast<Block*>(to)[b];
    block.scale = 0;
    for (std::size_t i = 0; i < 32; ++i) block.scale = std::max(block.scale, std::abs(row[b * 32 + i]) / 127);
    for (std::size_t i = 0; i < 32; ++i)
      block.codes[i] = static_cast<std::int8_t>(std::nearbyint(row[b * 32 + i] / block.scale));
  }
}

struct Tensor {
  std::string title;
  Op op = Op::none;
  Type type = Type::f32;
  std::int64_t ne[4] = {1, 1, 1, 1};
  std::size_t nb[4] = {};
  std::int32_t op_params[16] = {};
  std::vector<std::uint8_t> bytes;
  Tensor* src[3] = {};
  Tensor* view_src = nullptr;
  const char* name = "";

  Tensor() = default;
  Tensor(std::string its_title, Op its_op, Type its_type, std::vector<std::int64_t> sizes, Tensor* a = nullptr,
         Tensor* b = nullptr)
      : title(std::move(its_title)), op(its_op), type(its_type), src{a, b, nullptr} {
    std::copy(sizes.begin(), sizes.end(), ne);
    nb[0] = row_size(type, 32) / 32;
    nb[1] = row_size(type, ne[0]);
    for (int i = 2; i < 4; ++i) nb[i] = nb[i - 1] * static_cast<std::size_t>(ne[i - 1]);
  }
  template <class T>
  Tensor& holds(const std::vector<T>& values) {
    bytes.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return *this;
  }
};
inline void ggml_backend_tensor_get(const Tensor* t, void* out, std::size_t offset, std::size_t size) {
  if (offset + size > t->bytes.size()) std::abort();
  std::memcpy(out, t->bytes.data() + offset, size);
}

enum class Flash { disabled, enabled };
struct Params {
  std::uint32_t n_seq_max = 1;
  Type type_k = Type::f16, type_v = Type::f16;
  Flash flash_attn_type = Flash::enabled;
  bool kv_unified = true, swa_full = true;
  bool (*cb_eval)(Tensor*, bool, void*) = nullptr;
  void* cb_eval_user_data = nullptr;
};

struct Model {
  bool recurrent = false, hybrid = false;
  int swa = 0;
};
struct Batch {
  int n_tokens = 0;
  std::int32_t* token = nullptr;  // null: 0
  float* embd = nullptr;
  std::int32_t* pos = nullptr;  // null: the next ones
  std::int32_t* n_seq_id = nullptr;
  std::int32_t** seq_id = nullptr;  // null: 0
  std::int8_t* logits = nullptr;
};

struct Cell {
  int position = -1;            // -1: empty
  int rotated = 0;              // the position that its key is rotated to
  int token = 0;                // of which its rows are made
  std::uint32_t sequences = 0;  // a bit each
  bool has(int s) const { return position >= 0 && (sequences >> s & 1) != 0; }
};

struct Context {
  Params params;
  Model model;
  int n_ctx = 64, n_batch = 64, ubatch = 8, layers = 2, heads = 3, kv_heads = 2, head_dim = 16;
  bool can_shift = true, mixes = false, rotates = true, joins = false;
  std::vector<bool> slides;  // layers that do; empty: none
  int window_cells = 16;     // of those
  std::string without;       // a node that its graph does not have
  int ghost = -1;            // a column that gets attention though nothing is there
  int spoilt = -1;           // a position whose query gives NaN in the first head of the first layer
  int stored = -1;           // tokens that are stored before a call is aborted; -1: it is not
  std::vector<Cell> cells = std::vector<Cell>(64);
  std::vector<std::string> log;  // of removals and shifts
  std::vector<int> heads_of;     // where the search for cells begins, in each stream
  std::deque<Tensor> keys, values;
  int asked = 0, computed = 0;  // nodes that the callback was asked about, and that it wanted

  bool is_sliding(int layer) const { return !slides.empty() && slides[static_cast<std::size_t>(layer)]; }
  int streams() const { return params.kv_unified ? 1 : static_cast<int>(params.n_seq_max); }
  int stream_cells() const { return n_ctx / streams(); }
  int stream_of(int s) const { return streams() > 1 ? s : 0; }
  int last(int s = 0) const {
    int p = -1;
    for (const Cell& c : cells)
      if (c.has(s)) p = std::max(p, c.position);
    return p;
  }
  int used() const {
    return static_cast<int>(std::count_if(cells.begin(), cells.end(), [](const Cell& c) { return c.position >= 0; }));
  }
  int used(int s) const {
    return static_cast<int>(std::count_if(cells.begin(), cells.end(), [&](const Cell& c) { return c.has(s); }));
  }
};
using Memory = Context;

/// What the query at position q gives the key that is rotated to k, before division; in eighths, so that sums are
/// exact.
inline float weight(int layer, int head, int q, int k) {
  return static_cast<float>((q * 7 + k * (5 + head) + (k % 11) * layer + head * 3) % 29 + 1) / 8;
}

/// A number of a token's key before its rotation, or of its value.
inline float number(bool key, int layer, int head, int i, int token) {
  return std::sin(static_cast<float>((token * 37 + layer * 11 + head * 5 + i * 3 + (key ? 0 : 7)) % 10007));
}
/// The angle of pair i of `pairs` at a position.
inline float angle(int i, int pairs, int position) {
  return static_cast<float>(position) * std::pow(100.f, -static_cast<float>(i) / static_cast<float>(pairs));
}

/// What the cache holds of a cell in a layer.
inline std::vector<float> row_of(const Context& c, bool key, int layer, const Cell& cell) {
  const int half = c.head_dim / 2;
  std::vector<float> row;
  for (int h = 0; h < c.kv_heads; ++h) {
    std::vector<float> x;
    for (int i = 0; i < c.head_dim; ++i) x.push_back(number(key, layer, h, i, cell.token));
    for (int i = 0; key && c.rotates && i < half; ++i) {
      const float a = x[static_cast<std::size_t>(i)], b = x[static_cast<std::size_t>(half + i)];
      const float cos = std::cos(angle(i, half, cell.rotated)), sin = std::sin(angle(i, half, cell.rotated));
      x[static_cast<std::size_t>(i)] = a * cos - b * sin;
      x[static_cast<std::size_t>(half + i)] = a * sin + b * cos;
    }
    std::vector<float> mixed = x;
    for (int i = 0; c.mixes && i < c.head_dim; ++i) {
      float sum = 0;
      for (int j = 0; j < c.head_dim; ++j)
        sum +=
            (__builtin_popcount(static_cast<unsigned>(i & j)) % 2 != 0 ? -1.f : 1.f) * x[static_cast<std::size_t>(j)];
      mixed[static_cast<std::size_t>(i)] = sum / std::sqrt(static_cast<float>(c.head_dim));
    }
    row.insert(row.end(), mixed.begin(), mixed.end());
  }
  return row;
}

inline void make_cache(Context& c) {
  if (!c.keys.empty()) return;
  const std::int64_t row = c.kv_heads * c.head_dim;
  for (int layer = 0; layer < c.layers; ++layer) {
    const int cells = c.is_sliding(layer) && !c.params.swa_full ? c.window_cells : c.stream_cells();
    for (bool key : {true, false}) {
      Tensor t("cache_" + std::string(key ? "k" : "v") + "_l" + std::to_string(layer), Op::none,
               key ? c.params.type_k : c.params.type_v, {row, cells, c.streams()});
      t.bytes.resize(t.nb[3]);
      (key ? c.keys : c.values).push_back(t);
    }
  }
  c.heads_of.assign(static_cast<std::size_t>(c.streams()), 0);
}
inline bool is_transposed(const Context& c) { return c.params.flash_attn_type == Flash::disabled; }

/// Writes what the cache holds of a cell, in all layers but sliding ones, whose rows nobody reads.
inline void refresh(Context& c, int index) {
  for (int layer = 0; layer < c.layers; ++layer) {
    if (c.is_sliding(layer)) continue;
    const Cell& cell = c.cells[static_cast<std::size_t>(index)];
    Tensor &k = c.keys[static_cast<std::size_t>(layer)], &v = c.values[static_cast<std::size_t>(layer)];
    store(k.type, row_of(c, true, layer, cell), k.bytes.data() + static_cast<std::size_t>(index) * k.nb[1]);
    const std::vector<float> value = row_of(c, false, layer, cell);
    if (!is_transposed(c)) {
      store(v.type, value, v.bytes.data() + static_cast<std::size_t>(index) * v.nb[1]);
      continue;
    }
    const int cells = c.stream_cells(), stream = index / cells;
    for (std::size_t j = 0; j < value.size(); ++j)
      store(v.type, {value[j]},
            v.bytes.data() + static_cast<std::size_t>(stream) * v.nb[2] +
                (j * static_cast<std::size_t>(cells) + static_cast<std::size_t>(index % cells)) * v.nb[0]);
  }
}

inline void show(Context& c, Tensor& t) {
  if (c.params.cb_eval == nullptr || (!c.without.empty() && t.title.find(c.without) == 0)) return;
  t.name = t.title.c_str();
  ++c.asked;
  if (!c.params.cb_eval(&t, true, c.params.cb_eval_user_data)) return;
  ++c.computed;
  if (!c.params.cb_eval(&t, false, c.params.cb_eval_user_data)) std::abort();
}

struct Placed {
  int sequence, cell, position;
};

/// The node that stores rows of a micro-batch in a layer, with what they were made of.
inline void show_store(Context& c, bool key, int layer, Tensor& cells, Tensor& positions) {
  const std::int64_t n = positions.ne[0], row = c.kv_heads * c.head_dim;
  std::deque<Tensor> made;
  const auto add = [&](const std::string& title, Op op, std::vector<std::int64_t> sizes,
                       Tensor* b = nullptr) -> Tensor& {
    Tensor* before = made.empty() ? nullptr : &made.back();
    made.emplace_back(title, op, Type::f32, std::move(sizes), before, b);
    made.back().name = title.empty() ? "" : "attn_inp_k_rot";
    return made.back();
  };
  add("", Op::none, {c.head_dim, c.kv_heads, n});
  if (key && c.rotates) {
    Tensor& rope = add("", Op::rope, {c.head_dim, c.kv_heads, n}, &positions);
    const std::int32_t sizes[] = {0, c.head_dim, 2, 0, 4096};
    const float reals[] = {100, 1, 0, 1, 32, 1};
    std::memcpy(rope.op_params, sizes, sizeof sizes);
    std::memcpy(rope.op_params + 5, reals, sizeof reals);
  }
  if (c.joins) add("", Op::concat, {c.head_dim, c.kv_heads, n});
  Tensor matrix(key ? "attn_inp_k_rot" : "attn_inp_v_rot", Op::none, Type::f32, {c.head_dim, c.head_dim});
  if (c.mixes) {
    std::vector<float> numbers;
    for (int i = 0; i < c.head_dim; ++i)
      for (int j = 0; j < c.head_dim; ++j)
        numbers.push_back((__builtin_popcount(static_cast<unsigned>(i & j)) % 2 != 0 ? -1.f : 1.f) /
                          std::sqrt(static_cast<float>(c.head_dim)));
    matrix.holds(numbers).name = matrix.title.c_str();
    Tensor& flat = add("", Op::reshape, {c.head_dim, c.kv_heads * n});
    Tensor& product = add("", Op::mul_mat, {c.head_dim, c.kv_heads * n});
    product.src[0] = &matrix;
    product.src[1] = &flat;
    add("", Op::reshape, {c.head_dim, c.kv_heads, n});
  }
  Tensor& view = add("", Op::view, {row, n});
  Tensor& root = (key ? c.keys : c.values)[static_cast<std::size_t>(layer)];
  const bool flat = !key && is_transposed(c);
  Tensor node(root.title + (c.streams() > 1 || flat ? " (reshaped) (view)" : " (view)"), Op::set_rows, root.type,
              {flat ? 1 : row, n}, &view, &cells);
  node.view_src = &root;
  show(c, node);
}

inline void compute(Context& c, const std::vector<Placed>& batch, int streams) {
  const auto n = static_cast<std::int64_t>(batch.size());
  std::vector<std::int64_t> at, window_at;
  std::vector<std::int32_t> positions;
  for (const Placed& p : batch) {
    at.push_back(p.cell);
    window_at.push_back(p.position % c.window_cells);
    positions.push_back(p.position);
    refresh(c, p.cell);
  }
  Tensor cells("", Op::none, Type::i64, {n}), windows("", Op::none, Type::i64, {n}),
      places("", Op::none, Type::i32, {n});
  cells.holds(at);
  windows.holds(window_at);
  places.holds(positions);
  int top = 0;
  for (int i = 0; i < c.n_ctx; ++i)
    if (c.cells[static_cast<std::size_t>(i)].position >= 0) top = std::max(top, i % c.stream_cells() + 1);
  const int columns = std::min((top + 15) / 16 * 16, c.stream_cells());  // padded
  for (int layer = 0; layer < c.layers; ++layer) {
    for (bool key : {true, false}) show_store(c, key, layer, c.is_sliding(layer) ? windows : cells, places);
    if (c.params.flash_attn_type == Flash::enabled) continue;
    std::vector<float> p;
    const std::size_t queries = batch.size() / static_cast<std::size_t>(streams);
    for (int s = 0; s < streams; ++s)
      for (int h = 0; h < c.heads; ++h)
        for (std::size_t i = 0; i < queries; ++i) {
          const Placed& q = batch[static_cast<std::size_t>(s) * queries + i];
          for (int column = 0; column < columns; ++column) {
            const Cell& cell = c.cells[static_cast<std::size_t>(c.stream_of(q.sequence) * c.stream_cells() + column)];
            const bool seen = cell.has(q.sequence) && cell.position <= q.position;
            p.push_back(layer + h == 0 && q.position == c.spoilt ? std::nanf("")
                        : seen                                   ? weight(layer, h, q.position, cell.rotated)
                        : column == c.ghost                      ? 1.f
                                                                 : 0.f);
          }
        }
    Tensor soft("kq_soft_max-" + std::to_string(layer), Op::soft_max, Type::f32,
                {columns, static_cast<std::int64_t>(queries), c.heads, streams});
    soft.holds(p);
    show(c, soft);
  }
}

inline int llama_decode(Context* c, const Batch& batch) {
  make_cache(*c);
  for (int i = 0; i < c->n_ctx; ++i) {
    Cell& cell = c->cells[static_cast<std::size_t>(i)];
    if (cell.position < 0 || cell.rotated == cell.position) continue;
    cell.rotated = cell.position;
    refresh(*c, i);
    Tensor shift("cache_k_l0 (view)", Op::rope, Type::f32, {1});  // the graph of the shift
    show(*c, shift);
  }
  std::vector<std::vector<int>> of(c->params.n_seq_max);  // each sequence's tokens of the batch
  std::vector<int> order, positions;
  for (int i = 0; i < batch.n_tokens; ++i) {
    const int s = batch.seq_id == nullptr ? 0 : batch.seq_id[i][0];
    const int next = c->last(s) + 1 + static_cast<int>(of[static_cast<std::size_t>(s)].size());
    if (batch.pos != nullptr && batch.pos[i] != next) return -1;
    of[static_cast<std::size_t>(s)].push_back(i);
    positions.push_back(next);
    order.push_back(s);
  }
  for (int stream = 0; stream < c->streams(); ++stream) {
    int room = 0;
    for (int i = 0; i < c->stream_cells(); ++i)
      room += c->cells[static_cast<std::size_t>(stream * c->stream_cells() + i)].position < 0;
    for (std::size_t s = 0; s < of.size(); ++s)
      if (c->stream_of(static_cast<int>(s)) == stream) room -= static_cast<int>(of[s].size());
    if (room < 0) return 1;
  }
  std::vector<std::size_t> done(of.size());
  for (int left = batch.n_tokens, next = 0; left > 0;) {
    std::vector<int> tokens;
    int streams = 1;
    if (c->streams() == 1) {
      for (; next < batch.n_tokens && static_cast<int>(tokens.size()) < c->ubatch; ++next) tokens.push_back(next);
    } else {  // as many of each sequence, side by side
      std::size_t count = static_cast<std::size_t>(c->ubatch), with = 0;
      for (std::size_t s = 0; s < of.size(); ++s)
        if (done[s] < of[s].size()) {
          count = std::min(count, of[s].size() - done[s]);
          ++with;
        }
      count = std::max<std::size_t>(1, std::min(count, static_cast<std::size_t>(c->ubatch) / with));
      for (std::size_t s = 0; s < of.size(); ++s)
        if (done[s] < of[s].size()) {
          tokens.insert(tokens.end(), of[s].begin() + static_cast<std::ptrdiff_t>(done[s]),
                        of[s].begin() + static_cast<std::ptrdiff_t>(done[s] + count));
          done[s] += count;
        }
      streams = static_cast<int>(with);
    }
    std::vector<Placed> placed;
    for (int i : tokens) {
      if (c->stored >= 0 && batch.n_tokens - left >= c->stored) return 2;
      const int s = order[static_cast<std::size_t>(i)], stream = c->stream_of(s), size = c->stream_cells();
      int& head = c->heads_of[static_cast<std::size_t>(stream)];
      while (c->cells[static_cast<std::size_t>(stream * size + head % size)].position >= 0) ++head;
      head %= size;
      const int at = stream * size + head, position = positions[static_cast<std::size_t>(i)];
      c->cells[static_cast<std::size_t>(at)] = {position, position, batch.token == nullptr ? position : batch.token[i],
                                                1u << s};
      placed.push_back({s, at, position});
      --left;
    }
    compute(*c, placed, streams);
  }
  return 0;
}

inline const Model* llama_get_model(const Context* c) { return &c->model; }
inline bool llama_model_is_recurrent(const Model* m) { return m->recurrent; }
inline bool llama_model_is_hybrid(const Model* m) { return m->hybrid; }
inline int llama_model_n_swa(const Model* m) { return m->swa; }
inline std::uint32_t llama_n_ctx(const Context* c) { return static_cast<std::uint32_t>(c->n_ctx); }
inline std::uint32_t llama_n_ctx_seq(const Context* c) { return static_cast<std::uint32_t>(c->stream_cells()); }
inline std::uint32_t llama_n_batch(const Context* c) { return static_cast<std::uint32_t>(c->n_batch); }
inline std::uint32_t llama_n_seq_max(const Context* c) { return c->params.n_seq_max; }
inline Memory* llama_get_memory(Context* c) { return c; }
inline bool llama_memory_can_shift(Memory* m) { return m->can_shift; }
inline int llama_memory_seq_pos_max(Memory* m, int s) { return m->last(s); }

inline void llama_memory_clear(Memory* m, bool) {
  for (Cell& c : m->cells) c = {};
  std::fill(m->heads_of.begin(), m->heads_of.end(), 0);
}
/// f(cell) of a sequence's cells at positions [p0, p1), -1: all.
template <class F>
void for_each_cell(Memory* m, int s, int p0, int p1, F&& f) {
  for (Cell& c : m->cells)
    if (c.has(s) && c.position >= p0 && (p1 < 0 || c.position < p1)) f(c);
}
inline bool llama_memory_seq_rm(Memory* m, int s, int p0, int p1) {
  m->log.push_back("rm " + std::to_string(p0) + " " + std::to_string(p1));
  for_each_cell(m, s, p0, p1, [&](Cell& c) {
    c.sequences &= ~(1u << s);
    if (c.sequences == 0) c = {};
  });
  return true;
}
inline void llama_memory_seq_add(Memory* m, int s, int p0, int p1, int by) {
  m->log.push_back("add " + std::to_string(p0) + " " + std::to_string(p1) + " " + std::to_string(by));
  for_each_cell(m, s, p0, p1, [&](Cell& c) { c.position += by; });
}
inline void llama_memory_seq_cp(Memory* m, int from, int to, int, int) {
  if (m->streams() == 1) return for_each_cell(m, from, 0, -1, [&](Cell& c) { c.sequences |= 1u << to; });
  const int size = m->stream_cells();
  for (int i = 0; i < size; ++i) {
    Cell& c = m->cells[static_cast<std::size_t>(to * size + i)];
    c = m->cells[static_cast<std::size_t>(from * size + i)];
    if (c.position < 0) continue;
    c.sequences = 1u << to;
    refresh(*m, to * size + i);
  }
}

/// Of the used cells in order what they are: a shift that is pending is lost.
inline std::size_t llama_state_seq_get_size(Context* c, int) {
  return static_cast<std::size_t>(c->used()) * sizeof(Cell);
}
inline std::size_t llama_state_seq_get_data(Context* c, std::uint8_t* out, std::size_t size, int) {
  std::size_t at = 0;
  for (const Cell& cell : c->cells) {
    if (cell.position < 0) continue;
    if (at + sizeof(Cell) > size) return 0;
    std::memcpy(out + at, &cell, sizeof(Cell));
    at += sizeof(Cell);
  }
  return at;
}
inline std::size_t llama_state_seq_set_data(Context* c, const std::uint8_t* in, std::size_t size, int) {
  make_cache(*c);
  for (std::size_t i = 0; i < size; i += sizeof(Cell)) {
    int& head = c->heads_of[0];
    std::memcpy(&c->cells[static_cast<std::size_t>(head)], in + i, sizeof(Cell));
    refresh(*c, head++);
  }
  return size;
}

}  // namespace fake
