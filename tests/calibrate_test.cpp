// The parts of buzz-calibrate.
#include "calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "buzz/policy_list.h"
#include "model/refused.h"
#include "model/small_model.h"
#include "oracle_twin.h"
#include "thread_pool.h"

namespace {

using calibrate::Line;
using calibrate::Replay;
using calibrate::Sums;
using oracle::refused;
using tiny_llama::Model;
using Ids = std::vector<std::int32_t>;
using Rows = std::vector<std::vector<double>>;

Model made(const model::GgufBuilder& builder) {
  return model::from_file([&] { return tiny_llama::read_model(tiny_llama::Gguf::parse(builder.build())); });
}

// --- the regression

/// Ridge regression as the books have it: features standardised, then the normal equations over the number of rows.
Line slow_fit(const Rows& x, const std::vector<double>& y, double ridge) {
  const std::size_t n = x.size(), dims = x[0].size();
  std::vector<double> mean(dims, 0), deviation(dims, 0);
  double mean_y = 0;
  for (std::size_t r = 0; r < n; ++r) {
    mean_y += y[r] / static_cast<double>(n);
    for (std::size_t d = 0; d < dims; ++d) mean[d] += x[r][d] / static_cast<double>(n);
  }
  for (std::size_t r = 0; r < n; ++r)
    for (std::size_t d = 0; d < dims; ++d) deviation[d] += std::pow(x[r][d] - mean[d], 2) / static_cast<double>(n);
  Rows z = x;
  for (auto& row : z)
    for (std::size_t d = 0; d < dims; ++d)
      row[d] = deviation[d] < 1e-20 ? 0 : (row[d] - mean[d]) / std::sqrt(deviation[d]);
  Rows a(dims, std::vector<double>(dims, 0));
  std::vector<double> b(dims, 0);
  for (std::size_t i = 0; i < dims; ++i) {
    a[i][i] = ridge;
    for (std::size_t r = 0; r < n; ++r) {
      b[i] += z[r][i] * (y[r] - mean_y) / static_cast<double>(n);
      for (std::size_t j = 0; j < dims; ++j) a[i][j] += z[r][i] * z[r][j] / static_cast<double>(n);
    }
  }
  const std::vector<double> beta = oracle::solved(a, b);
  Line line;
  line.weights.resize(static_cast<Eigen::Index>(dims));
  line.bias = mean_y;
  for (std::size_t d = 0; d < dims; ++d) {
    const double w = deviation[d] < 1e-20 ? 0 : beta[d] / std::sqrt(deviation[d]);
    line.weights[static_cast<Eigen::Index>(d)] = w;
    line.bias -= w * mean[d];
  }
  return line;
}
double slow_correlation(const Rows& x, const std::vector<double>& y, const Line& line) {
  std::vector<double> e;
  for (const auto& row : x) {
    e.push_back(line.bias);
    for (std::size_t d = 0; d < row.size(); ++d) e.back() += row[d] * line.weights[static_cast<Eigen::Index>(d)];
  }
  double me = 0, my = 0, ee = 0, yy = 0, ey = 0;
  for (std::size_t r = 0; r < e.size(); ++r) {
    me += e[r] / static_cast<double>(e.size());
    my += y[r] / static_cast<double>(e.size());
  }
  for (std::size_t r = 0; r < e.size(); ++r) {
    ee += (e[r] - me) * (e[r] - me);
    yy += (y[r] - my) * (y[r] - my);
    ey += (e[r] - me) * (y[r] - my);
  }
  return ee * yy == 0 ? 0 : ey / std::sqrt(ee * yy);
}
Eigen::MatrixXd matrix(const Rows& rows, std::size_t first, std::size_t end) {
  Eigen::MatrixXd m(static_cast<Eigen::Index>(end - first), static_cast<Eigen::Index>(rows[0].size()));
  for (std::size_t r = first; r < end; ++r)
    for (std::size_t d = 0; d < rows[0].size(); ++d)
      m(static_cast<Eigen::Index>(r - first), static_cast<Eigen::Index>(d)) = rows[r][d];
  return m;
}
Eigen::VectorXd vector(const std::vector<double>& y, std::size_t first, std::size_t end) {
  return Eigen::Map<const Eigen::VectorXd>(y.data() + first, static_cast<Eigen::Index>(end - first));
}

TEST(Ridge, IsTheSlowOneOfTheSameRows) {
  oracle::Random random(5);
  for (int i = 0; i < 100; ++i) {
    const auto n = static_cast<std::size_t>(random.in(1, 60)), dims = static_cast<std::size_t>(random.in(1, 12));
    Rows x(n, std::vector<double>(dims));
    std::vector<double> y(n);
    const double offset = random.of({0., 3., 100.});
    const std::size_t still = random.one_in(3) ? 0 : dims;  // a feature that never changes
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t d = 0; d < dims; ++d)
        x[r][d] = d == still ? offset
                             : offset + std::pow(10., static_cast<double>(d % 4)) * static_cast<double>(random.real());
      y[r] = x[r][0] - 2 * x[r][dims - 1] + static_cast<double>(random.real());
    }
    Sums sums(static_cast<Eigen::Index>(dims)), more(static_cast<Eigen::Index>(dims));
    const auto cut = static_cast<std::size_t>(random.in(0, static_cast<int>(n)));
    if (cut > 0) sums.add(matrix(x, 0, cut), vector(y, 0, cut));
    if (cut < n) more.add(matrix(x, cut, n), vector(y, cut, n));
    sums += more;
    ASSERT_EQ(sums.rows(), static_cast<double>(n));
    const double ridge = random.of({0.01, 1., 100.});
    const Line exact = slow_fit(x, y, ridge), fit = sums.fit(ridge);
    for (std::size_t d = 0; d < dims; ++d)
      ASSERT_NEAR(fit.weights[static_cast<Eigen::Index>(d)], exact.weights[static_cast<Eigen::Index>(d)], 1e-6) << i;
    ASSERT_NEAR(fit.bias, exact.bias, 1e-4) << i;
    ASSERT_NEAR(sums.correlation(fit), slow_correlation(x, y, exact), n == 1 ? 1 : 1e-5) << i;
  }
}

TEST(Ridge, FindsALine) {
  Sums sums(2);
  Eigen::MatrixXd x(4, 2);
  x << 1, 0, 0, 1, 3, 1, 2, 5;
  sums.add(x, Eigen::Vector4d(x.col(0) * 2 - x.col(1) + Eigen::Vector4d::Constant(7)));
  const Line line = sums.fit(1e-9);
  EXPECT_NEAR(line.weights[0], 2, 1e-6);
  EXPECT_NEAR(line.weights[1], -1, 1e-6);
  EXPECT_NEAR(line.bias, 7, 1e-6);
  EXPECT_NEAR(sums.correlation(line), 1, 1e-6);
  Line away = line;
  away.weights = -away.weights;
  EXPECT_NEAR(sums.correlation(away), -1, 1e-6);
}

// --- the replay

/// Notes all that a full cache is shown.
class Recorder final : public tiny_llama::CacheOf<float> {
 public:
  struct Seen {
    std::vector<std::vector<double>> q, k, v;  // a row a token
  };
  Recorder(const tiny_llama::Config& c, std::vector<Seen>& seen)
      : CacheOf(c, buzz::policy("full:capacity=" + std::to_string(c.context)), buzz::Positions::logical, c.context),
        seen_(seen) {}
  void attend(int layer, buzz::View<const float> q, buzz::View<const float> k, buzz::View<const float> v,
              buzz::View<float> out, buzz::Executor run) override {
    Seen& s = seen_[static_cast<std::size_t>(layer)];
    for (int t = 0; t < q.shape(0); ++t) {
      s.q.push_back({q.row(t, 0), q.row(t, 0) + q.shape(1) * q.shape(2)});
      s.k.push_back({k.row(t, 0), k.row(t, 0) + k.shape(1) * k.shape(2)});
      s.v.push_back({v.row(t, 0), v.row(t, 0) + v.shape(1) * v.shape(2)});
    }
    CacheOf::attend(layer, q, k, v, out, run);
  }

 private:
  std::vector<Seen>& seen_;
};

/// A head's part of a row, rotated to its position.
oracle::Vector part(const std::vector<double>& row, int head, int position, const tiny_llama::Config& c) {
  oracle::Vector x(row.begin() + head * c.head_dim, row.begin() + (head + 1) * c.head_dim);
  const oracle::Rotation rotation =
      oracle::rotation_of(tiny_llama::rope_of(c, buzz::Positions::logical), c.head_dim, false);
  return oracle::rotated_to(x, position, rotation);
}

/// Each piece read after text and request, all from the beginning, and every probability made by itself.
void expect_replay(const Model& model, const Ids& text, const calibrate::ReplayOptions& o, const Replay& got) {
  const tiny_llama::Config& c = model.config;
  const Ids request = model.tokenizer.encode_more(o.request);
  const bool bos = model.tokenizer.vocabulary().add_bos && text[0] == model.tokenizer.vocabulary().bos;
  std::vector<std::vector<std::vector<double>>> most(
      static_cast<std::size_t>(c.layers),
      Rows(static_cast<std::size_t>(c.kv_heads), std::vector<double>(text.size(), 0)));
  for (std::size_t at = bos ? 1 : 0; at < text.size(); at += static_cast<std::size_t>(o.piece)) {
    std::vector<Recorder::Seen> seen(static_cast<std::size_t>(c.layers));
    tiny_llama::Llama llama(model, std::make_unique<Recorder>(c, seen));
    Ids all = text;
    all.insert(all.end(), request.begin(), request.end());
    const std::size_t first = all.size(), end = std::min(text.size(), at + static_cast<std::size_t>(o.piece));
    all.insert(all.end(), text.begin() + static_cast<std::ptrdiff_t>(at),
               text.begin() + static_cast<std::ptrdiff_t>(end));
    llama.forward(all);
    for (int l = 0; l < c.layers; ++l) {
      const Recorder::Seen& s = seen[static_cast<std::size_t>(l)];
      if (c.slides(l)) continue;
      for (int h = 0; h < c.query_heads; ++h)
        for (std::size_t t = first; t < all.size(); ++t) {
          const int kv = h / (c.query_heads / c.kv_heads);
          const oracle::Vector q = part(s.q[t], h, static_cast<int>(t), c);
          std::vector<double> p;
          double sum = 0;
          for (std::size_t r = 0; r <= t; ++r) {
            p.push_back(std::exp(oracle::dot(q, part(s.k[r], kv, static_cast<int>(r), c)) / std::sqrt(c.head_dim)));
            sum += p.back();
          }
          for (std::size_t r = 0; r < text.size(); ++r) {
            double& m = most[static_cast<std::size_t>(l)][static_cast<std::size_t>(kv)][r];
            m = std::max(m, p[r] / sum);
          }
        }
      for (std::size_t r = 0; r < text.size(); ++r)
        for (std::size_t d = 0; d < s.k[r].size(); ++d) {
          const auto row = static_cast<Eigen::Index>(r), column = static_cast<Eigen::Index>(d);
          ASSERT_NEAR(got.keys[static_cast<std::size_t>(l)](row, column), s.k[r][d], 1e-5);
          ASSERT_NEAR(got.values[static_cast<std::size_t>(l)](row, column), s.v[r][d], 1e-5);
        }
    }
  }
  for (int l = 0; l < c.layers; ++l) {
    const tiny_llama::Matrix& attention = got.attention[static_cast<std::size_t>(l)];
    ASSERT_EQ(attention.cols(), c.slides(l) ? 0 : static_cast<Eigen::Index>(text.size()));
    for (Eigen::Index h = 0; h < attention.rows(); ++h)
      for (Eigen::Index r = 0; r < attention.cols(); ++r)
        ASSERT_NEAR(attention(h, r),
                    most[static_cast<std::size_t>(l)][static_cast<std::size_t>(h)][static_cast<std::size_t>(r)], 1e-5);
  }
}

calibrate::ReplayOptions small_pieces(int piece) {
  calibrate::ReplayOptions o;
  o.piece = piece;
  o.request = "ab\n";
  return o;
}
Ids some_text(const Model& model, int tokens) {
  Ids ids = {model.tokenizer.vocabulary().bos};
  for (int i = 1; i < tokens; ++i) ids.push_back(4 + (i * i / 3 + i) % 4);
  return ids;
}

TEST(Replay, IsTheHighestProbabilityOfTheSecondReading) {
  for (const model::GgufBuilder& builder : {model::small_model(), model::small_gemma()}) {
    const Model m = made(builder);
    for (int piece : {1, 5, 40}) {
      const Ids text = some_text(m, 17);
      std::size_t read = 0;
      const Replay got = calibrate::replay(m, text, small_pieces(piece), {}, [&](std::size_t n) { read += n; });
      ASSERT_NO_FATAL_FAILURE(expect_replay(m, text, small_pieces(piece), got));
      EXPECT_EQ(read, 17u + 16u);
    }
    ASSERT_NO_FATAL_FAILURE(expect_replay(m, {6}, small_pieces(5), calibrate::replay(m, {6}, small_pieces(5))));
  }
}

TEST(Replay, IsTheSameOnTwoThreads) {
  const Model m = made(model::small_gemma());
  examples::ThreadPool pool(2);
  const Ids text = some_text(m, 30);
  calibrate::ReplayOptions two = small_pieces(7);
  two.threads = 2;
  const Replay a = calibrate::replay(m, text, small_pieces(7)), b = calibrate::replay(m, text, two, pool);
  EXPECT_EQ(a.attention[2], b.attention[2]);
  EXPECT_EQ(a.keys[2], b.keys[2]);
}

TEST(Replay, RefusesWhatTheContextHasNoRoomFor) {
  const Model m = made(model::small_model());
  const int asked = static_cast<int>(m.tokenizer.encode_more("ab\n").size()), most = 64 - asked - 10;
  EXPECT_NO_THROW(calibrate::replay(m, some_text(m, most), small_pieces(10)));
  EXPECT_EQ(refused([&] { calibrate::replay(m, some_text(m, most + 1), small_pieces(10)); }), "tokens");
  EXPECT_EQ(refused([&] { calibrate::replay(m, {}, small_pieces(10)); }), "tokens");
  EXPECT_EQ(refused([&] { calibrate::replay(m, {5}, small_pieces(0)); }), "piece");
}

// --- segments

TEST(Segments, LieApartAndAreSpreadOverTheTexts) {
  const Model m = made(model::small_model());
  Ids one(40), two(100), brief(3, 4);
  for (int i = 0; i < 40; ++i) one[static_cast<std::size_t>(i)] = i;
  for (int i = 0; i < 100; ++i) two[static_cast<std::size_t>(i)] = 1000 + i;
  const std::vector<Ids> got = calibrate::segments_of(m, {one, brief, two}, 6, 11);
  ASSERT_EQ(got.size(), 6u);
  std::vector<int> firsts;
  for (const Ids& s : got) {
    ASSERT_EQ(s.size(), 11u);
    EXPECT_EQ(s[0], m.tokenizer.vocabulary().bos);
    for (std::size_t i = 2; i < s.size(); ++i) EXPECT_EQ(s[i], s[i - 1] + 1) << "of one text";
    EXPECT_GE(s[1], firsts.empty() ? 0 : firsts.back() + 10);
    firsts.push_back(s[1]);
  }
  EXPECT_EQ(firsts, (std::vector<int>{0, 20, 1009, 1030, 1050, 1070}));
  EXPECT_EQ(refused([&] { calibrate::segments_of(m, {one, brief}, 5, 11); }), "segments");
  EXPECT_EQ(refused([&] { calibrate::segments_of(m, {brief}, 1, 11); }), "segments");
}

// --- the calibration

TEST(LayerSums, ArePerHeadOfLayersThatDoNotSlide) {
  const Model m = made(model::small_gemma());
  const Ids text = some_text(m, 30);
  const Replay r = calibrate::replay(m, text, small_pieces(30));
  calibrate::LayerSums sums(m.config);
  sums.add(r);
  EXPECT_FALSE(sums.has(0));
  EXPECT_TRUE(sums.has(2));
  Rows x;
  std::vector<double> y;
  for (Eigen::Index t = calibrate::sink_rows; t < 30; ++t) {
    x.emplace_back();
    for (const auto* half : {&r.keys[2], &r.values[2]})
      for (Eigen::Index d = 0; d < 20; ++d) x.back().push_back(static_cast<double>((*half)(t, d)));
    y.push_back(std::log(static_cast<double>(r.attention[2](0, t)) + 1e-6));
  }
  const Line exact = slow_fit(x, y, 0.01);
  const buzz::Calibration c = calibrate::calibration_of(m.config, sums, 0.01);
  EXPECT_FALSE(c.has(0));
  EXPECT_FALSE(c.has(1));
  ASSERT_TRUE(c.has(2));
  for (int i = 0; i < 40; ++i)
    EXPECT_NEAR(static_cast<double>(c.weights(2, 0)[i]), exact.weights[i], 1e-3 * (1 + std::fabs(exact.weights[i])));
  EXPECT_NEAR(static_cast<double>(c.weights(2, 0)[40]), exact.bias, 1e-3 * (1 + std::fabs(exact.bias)));
  EXPECT_NEAR(sums.correlation(2, sums.fit(2, 0.01)), slow_correlation(x, y, exact), 1e-3);
  // The model's cache takes it, and another model's does not.
  auto o = buzz::CalibratedOptions::for_rows(16, 4);
  o.weights = std::make_shared<buzz::Calibration>(c);
  EXPECT_NO_THROW(tiny_llama::CacheOf<float>(m.config, buzz::calibrated(o), buzz::Positions::logical, 4));
  EXPECT_EQ(refused<buzz::FileError>([&] {
              tiny_llama::CacheOf<float>(made(model::small_model()).config, buzz::calibrated(o),
                                         buzz::Positions::logical, 4);
            }),
            "calibration.name");
}

}  // namespace
