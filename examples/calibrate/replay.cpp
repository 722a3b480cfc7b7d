#include "calibrate/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "buzz/error.h"
#include "buzz/policies.h"

namespace calibrate {
namespace {

/// A full cache that notes what the Replay has, as it is told.
class WatchedCache final : public tiny_llama::CacheOf<float> {
 public:
  enum class Watch { nothing, rows, attention };
  /// What all forks of a cache write to. watch: the reader of the text sets it before it reads.
  struct Notes {
    Replay replay;
    Watch watch = Watch::rows;
  };

  WatchedCache(const Config& c, int capacity, int max_chunk, int threads, Notes& notes)
      : CacheOf(c, full(capacity), buzz::Positions::logical, max_chunk, threads),
        notes_(notes),
        rotation_(tiny_llama::rope_of(c, buzz::Positions::logical), c.head_dim) {}

  std::unique_ptr<tiny_llama::Cache> fork() const override {
    return std::unique_ptr<tiny_llama::Cache>(new WatchedCache(*this));
  }
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    const int before = rows(layer);
    CacheOf::attend(layer, q, k, v, out, run);
    if (cache_.layer(layer).is_sliding()) return;
    const auto at = static_cast<std::size_t>(layer);
    if (notes_.watch == Watch::rows) {
      note(k, before, notes_.replay.keys[at]);
      note(v, before, notes_.replay.values[at]);
    } else if (notes_.watch == Watch::attention) {
      look(cache_.layer(layer).keys(), q, notes_.replay.attention[at], run);
    }
  }

 private:
  static buzz::Policy full(int capacity) {
    buzz::FullOptions o;
    o.capacity = capacity;
    return buzz::full(o);
  }
  static void note(buzz::View<const float> rows, int first, Matrix& to) {
    for (int t = 0; t < rows.shape(0); ++t)
      for (int h = 0; h < rows.shape(1); ++h)
        std::copy_n(rows.row(t, h), rows.shape(2), to.row(first + t).data() + h * rows.shape(2));
  }

  /// Raises `most`, [kv_heads, tokens], to what the newest queries give to the first `tokens` rows. keys: [kv_heads,
  /// rows, head_dim], rotated.
  void look(buzz::View<const float> keys, buzz::View<const float> q, Matrix& most, buzz::Executor run) const {
    const int n = q.shape(0), heads = q.shape(1), group = heads / keys.shape(0), rows = keys.shape(1);
    Matrix angles(n, rotation_.dims());
    for (int t = 0; t < n; ++t) rotation_.angles(rows - n + t, angles.row(t).data());
    Matrix given = Matrix::Zero(heads, most.cols());
    run(heads, [&](int h) { look(keys, h / group, q, h, angles, given); });
    for (int g = 0; g < keys.shape(0); ++g)
      most.row(g) = most.row(g).cwiseMax(given.middleRows(g * group, group).colwise().maxCoeff());
  }
  /// The same of one query head into its row of `most`, [heads, tokens].
  void look(const buzz::View<const float>& keys, int kv_head, const buzz::View<const float>& q, int head,
            const Matrix& angles, Matrix& most) const {
    constexpr int block = 64;
    const int n = q.shape(0), dim = q.shape(2), rows = keys.shape(1);
    const float scale = 1 / std::sqrt(static_cast<float>(dim));
    const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> k(keys.row(kv_head, 0), rows, dim,
                                                              Eigen::OuterStride<>(keys.stride(1)));
    Matrix queries(block, dim), logits(block, rows);
    for (int first = 0; first < n; first += block) {
      const int count = (std::min)(block, n - first);
      for (int i = 0; i < count; ++i) {
        std::copy_n(q.row(first + i, head), dim, queries.row(i).data());
        rotation_.rotate(angles.row(first + i).data(), queries.row(i).data());
      }
      logits.topRows(count).noalias() = scale * queries.topRows(count) * k.transpose();
      for (int i = 0; i < count; ++i) {
        auto seen = logits.row(i).head(rows - n + first + i + 1).array();
        seen = (seen - seen.maxCoeff()).exp();
        most.row(head) = most.row(head).cwiseMax(logits.row(i).head(most.cols()) / seen.sum());
      }
    }
  }

  Notes& notes_;
  buzz::Rotation rotation_;
};

}  // namespace

Replay replay(const Model& model, const Tokens& text, const ReplayOptions& o, buzz::Executor run,
              const std::function<void(std::size_t)>& read) {
  const Config& c = model.config;
  const Tokens request = model.tokenizer.encode_more(o.request);
  const int tokens = static_cast<int>(text.size()), asked = static_cast<int>(request.size());
  buzz::require_range("piece", o.piece, 1, c.context);
  buzz::require_range("tokens", tokens, 1, c.context - asked - (std::min)(o.piece, tokens));
  WatchedCache::Notes notes;
  for (int i = 0; i < c.layers; ++i) {
    const int rows = c.slides(i) ? 0 : tokens, width = c.kv_heads * c.head_dim;
    notes.replay.keys.push_back(Matrix::Zero(rows, width));
    notes.replay.values.push_back(Matrix::Zero(rows, width));
    notes.replay.attention.push_back(Matrix::Zero(c.kv_heads, rows));
  }
  const auto forward = [&](tiny_llama::Llama& llama, const Tokens& from, std::size_t begin, std::size_t end) {
    const auto piece = static_cast<std::size_t>(o.piece);
    for (std::size_t at = begin; at < end; at += piece) {
      const std::size_t stop = (std::min)(end, at + piece);
      llama.forward({from.begin() + static_cast<std::ptrdiff_t>(at), from.begin() + static_cast<std::ptrdiff_t>(stop)});
      if (read && &from == &text) read(stop - at);
    }
  };
  tiny_llama::Llama llama(
      model, std::make_unique<WatchedCache>(c, tokens + asked + (std::min)(o.piece, tokens), o.piece, o.threads, notes),
      run);
  forward(llama, text, 0, text.size());
  notes.watch = WatchedCache::Watch::nothing;
  forward(llama, request, 0, request.size());
  notes.watch = WatchedCache::Watch::attention;
  const tiny_llama::Vocabulary& v = model.tokenizer.vocabulary();
  const auto piece = static_cast<std::size_t>(o.piece);
  for (std::size_t at = v.add_bos && text[0] == v.bos ? 1 : 0; at < text.size(); at += piece) {
    tiny_llama::Llama again = llama.fork();
    forward(again, text, at, (std::min)(text.size(), at + piece));
  }
  return std::move(notes.replay);
}

}  // namespace calibrate
