#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "attention_rows.h"
#include "decode_rows.h"
#include "eviction_rows.h"
#include "ratio.h"

namespace {

using bench::Ratio;

void print(std::vector<Ratio> table) {
  std::stable_sort(table.begin(), table.end(),
                   [](const Ratio& a, const Ratio& b) { return std::stoi(a.name) < std::stoi(b.name); });
  std::printf(
      "\nratio: the median of pairs run in turn; spread: the distance between their quartiles; ok or short by the\n"
      "median; one thread but for row 12; layers: query heads / KV heads x head size.\n\n");
  std::printf("%-64s %7s %7s %8s\n", "ratio of times", "ratio", "spread", "goal");
  for (const Ratio& r : table)
    std::printf("%-64s %7.3f %7.3f %8s  %s\n", r.name.c_str(), r.ratio, r.spread, r.goal.text().c_str(),
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
  app.add_option("--seconds", bench::most_seconds,
                 "that a ratio's rounds may take, if they are 8 at least; 0: one round")
      ->check(CLI::Range(0., 3600.))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  try {
    std::vector<Ratio> table;
    bench::eviction_rows(table);
    bench::attention_rows(table);
    bench::decode_rows(table);
    print(table);
    if (!json.empty()) write_json(table, json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "buzz-ratios: %s\n", error.what());
    return 1;
  }
  return 0;
}
