// A model's calibration: what its rows are worth, learnt from texts that it reads twice.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "buzz/score/calibration.h"
#include "calibrate/fit.h"
#include "calibrate/replay.h"

namespace calibrate {

/// The first rows, which every policy's sink protects: nothing is learnt from them.
constexpr int sink_rows = 4;

/// What the logarithm of attention is taken of in addition, so that none is -inf.
constexpr float least_attention = 1e-6f;

/// The sums of all heads of all layers that do not slide.
class LayerSums {
 public:
  explicit LayerSums(const Config& c) : heads_(c.kv_heads), dim_(c.head_dim) {
    for (int i = 0; i < c.layers; ++i)
      sums_.emplace_back(static_cast<std::size_t>(c.slides(i) ? 0 : heads_), Sums(2 * dim_));
  }

  /// The rows of a text that was replayed.
  void add(const Replay& r, buzz::Executor run = {}) {
    run(layers() * heads_, [&](int piece) {
      const int layer = piece / heads_, head = piece % heads_;
      if (!has(layer)) return;
      const Eigen::Index rows = r.keys[at(layer)].rows() - sink_rows;
      if (rows < 1) return;
      Matrix features(rows, 2 * dim_);
      features << r.keys[at(layer)].middleCols(head * dim_, dim_).bottomRows(rows),
          r.values[at(layer)].middleCols(head * dim_, dim_).bottomRows(rows);
      const auto attention = r.attention[at(layer)].row(head).tail(rows).transpose().array();
      sums_[at(layer)][at(head)].add(features, (attention + least_attention).log().matrix());
    });
  }
  LayerSums& operator+=(const LayerSums& other) {
    for (std::size_t i = 0; i < sums_.size(); ++i)
      for (std::size_t h = 0; h < sums_[i].size(); ++h) sums_[i][h] += other.sums_[i][h];
    return *this;
  }

  int layers() const { return static_cast<int>(sums_.size()); }
  bool has(int layer) const { return !sums_[at(layer)].empty(); }
  /// [kv_heads] lines of a layer.
  std::vector<Line> fit(int layer, double ridge) const {
    std::vector<Line> lines;
    for (const Sums& s : sums_[at(layer)]) lines.push_back(s.fit(ridge));
    return lines;
  }
  /// The mean over a layer's heads of the correlation with the target.
  double correlation(int layer, const std::vector<Line>& lines) const {
    double sum = 0;
    for (std::size_t h = 0; h < lines.size(); ++h) sum += sums_[at(layer)][h].correlation(lines[h]);
    return sum / static_cast<double>(lines.size());
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  int heads_, dim_;
  std::vector<std::vector<Sums>> sums_;  // [layers][kv_heads]
};

/// The calibration that the sums make.
inline buzz::Calibration calibration_of(const Config& c, const LayerSums& sums, double ridge) {
  buzz::Calibration calibration(tiny_llama::calibrated_model(c));
  for (int i = 0; i < c.layers; ++i) {
    if (!sums.has(i)) continue;
    std::vector<float> weights;
    for (const Line& line : sums.fit(i, ridge)) {
      for (const double w : line.weights) weights.push_back(static_cast<float>(w));
      weights.push_back(static_cast<float>(line.bias));
    }
    calibration.set(i, std::move(weights));
  }
  return calibration;
}

/// `count` stretches of `tokens` tokens, spread evenly over texts, none of which reaches over a text's end, each with
/// the beginning of sequence where the model has one. Errors: texts too short for so many side by side.
inline std::vector<Tokens> segments_of(const Model& model, const std::vector<Tokens>& texts, int count, int tokens) {
  const tiny_llama::Vocabulary& v = model.tokenizer.vocabulary();
  const std::size_t length = static_cast<std::size_t>(tokens) - (v.add_bos ? 1 : 0);
  std::size_t apart = 0, room = 0;
  for (const Tokens& t : texts) {
    apart += t.size() / length;
    if (t.size() >= length) room += t.size() - length + 1;
  }
  buzz::require_range("segments", count, 1, static_cast<long long>(apart));
  std::vector<Tokens> segments;
  for (int i = 0; i < count; ++i) {
    std::size_t begin = room * static_cast<std::size_t>(i) / static_cast<std::size_t>(count);
    auto text = texts.begin();
    for (; text->size() < length || begin > text->size() - length; ++text)
      if (text->size() >= length) begin -= text->size() - length + 1;
    Tokens segment;
    if (v.add_bos) segment.push_back(v.bos);
    const auto from = text->begin() + static_cast<std::ptrdiff_t>(begin);
    segment.insert(segment.end(), from, from + static_cast<std::ptrdiff_t>(length));
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace calibrate
