#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "plain_attention.h"
#include "problem.h"
#include "ratio.h"

namespace {

using bench::compare;
using bench::Goal;
using bench::Ratio;
using bench::repeated;
using bench::seconds;
using buzz::Beehive;
using buzz::Full;

/// Ours without observing, ours with, and the plain one, over the same rows.
template <class T>
class Attention {
 public:
  explicit Attention(int rows) : full_(rows), scored_(rows), out_(full_.q().size()) {
    without_observing();
    plain();
    for (std::size_t i = 0; i < out_.size(); ++i)
      if (!(std::abs(out_[i] - full_.out()[i]) < 1e-2f))
        throw std::runtime_error("ours and the plain attention differ");
  }
  void without_observing() { full_.attend(); }
  void with_observing() { scored_.attend_and_observe(); }
  void plain() {
    bench::plain_attention<T>(full_.q().data(), full_.cache().keys(), full_.cache().values(), bench::query_heads,
                              out_.data());
    benchmark::DoNotOptimize(out_.data());
  }

 private:
  bench::Decode<T, Full> full_;
  bench::Decode<T, Beehive> scored_;
  std::vector<float> out_;
};

/// The rows of the table for one type; a ratio is one call of compare().
template <class T>
void measure(const std::string& type, double plain_goal, std::vector<Ratio>& table) {
  Attention<T> attention(bench::paper_rows);
  bench::Eviction<T> eviction;
  const auto without = repeated([&] { attention.without_observing(); });
  const auto evict = [&] {
    eviction.prepare();
    return seconds([&] {
      eviction.select();
      eviction.compact();
    });
  };

  table.push_back(compare("attend with observing / without, " + type, Goal::at_most(1.03),
                          repeated([&] { attention.with_observing(); }), without));
  table.push_back(compare("select + compact, a token / attend, " + type, Goal::at_most(0.02), evict, without,
                          1.0 / eviction.tokens()));
  table.push_back(compare("attend / plain Eigen attention, " + type, Goal::at_most(plain_goal), without,
                          repeated([&] { attention.plain(); })));
}

void print(const std::vector<Ratio>& table) {
  std::printf(
      "\n%d rows, %d query heads over %d of %d, one thread. ratio: the median of pairs run in turn; spread: the\n"
      "distance between their quartiles; goal: ok or short by the median.\n\n",
      bench::paper_rows, bench::query_heads, bench::kv_heads, bench::head_dim);
  std::printf("%-48s %7s %7s %8s\n", "ratio of times", "ratio", "spread", "goal");
  for (const Ratio& r : table)
    std::printf("%-48s %7.3f %7.3f %8s  %s\n", r.name.c_str(), r.ratio, r.spread, r.goal.text().c_str(),
                r.goal.verdict(r.ratio).c_str());
}

void write_json(const std::vector<Ratio>& table, const std::string& path) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Ratio& r : table)
    rows.push_back({{"name", r.name},
                    {"ratio", r.ratio},
                    {"spread", r.spread},
                    {"goal", r.goal.text()},
                    {"verdict", r.goal.verdict(r.ratio)}});
  std::ofstream file(path);
  file << rows.dump(2) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace

// Exits 0 whatever the ratios are: the table says ok or short.
int main(int argc, char** argv) {
  CLI::App app("Ratios of times, each from pairs run in turn");
  std::string json;
  app.add_option("--json", json, "write the table to this file")->type_name("FILE");
  CLI11_PARSE(app, argc, argv);

  try {
    std::vector<Ratio> table;
    measure<float>("float", 0.6, table);
    measure<Eigen::half>("half", 0.4, table);
    print(table);
    if (!json.empty()) write_json(table, json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "buzz-ratios: %s\n", error.what());
    return 1;
  }
  return 0;
}
