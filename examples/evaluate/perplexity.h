// perplexity: running text, within the model's context beside the full cache, and far past it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/common.h"
#include "evaluate/texts.h"

namespace evaluate {

struct PerplexityOptions {
  std::vector<std::string> texts;  // files
  int length = 0;                  // tokens of a piece; 0: the model's context
  int pieces = 8;                  // of each text
  int stream = 20000;              // tokens read in one go past the context; 0: none
  int buckets = 8;                 // positions are told apart in as many
};

class Perplexity {
 public:
  static constexpr std::size_t block = 256;  // tokens whose likelihood is added up, and drawn as one by the bootstrap

  Perplexity(const Common& common, const PerplexityOptions& options, std::vector<Text> texts)
      : common_(common), o_(options), texts_(std::move(texts)) {
    if (o_.length == 0) o_.length = common.config().context;
    buzz::require_range("length", o_.length, 2, common.config().context);
    buzz::require_at_least("pieces", o_.pieces, 0);
    buzz::require_at_least("stream", o_.stream, 0);
    buzz::require_range("buckets", o_.buckets, 1, 64);
  }

  std::vector<Table> run() const {
    std::vector<Table> tables;
    if (o_.pieces > 0) within(tables);
    if (o_.stream > 0) past(tables);
    return tables;
  }

 private:
  /// The sums of each block's likelihoods, and how many tokens a block has; of each sequence.
  std::vector<json> read(Sequences s, const Tokens& tokens) const {
    std::vector<std::vector<Foretold>> foretold;
    s.read(tokens, &foretold);
    std::vector<json> results;
    for (int m = 0; m < s.size(); ++m) {
      const std::vector<Foretold>& said = foretold[static_cast<std::size_t>(m)];
      std::vector<double> sums;
      std::vector<int> counts;
      for (std::size_t i = 0; i < said.size(); ++i) {
        const std::size_t at = (i + 1) / block;  // token i + 1 of the sequence
        if (sums.size() <= at) {
          sums.push_back(0);
          counts.push_back(0);
        }
        sums[at] += said[i].nll;
        ++counts[at];
      }
      results.push_back({{"nll", sums}, {"tokens", counts}, {"cost", cost_of(s, m)}});
    }
    return results;
  }

  /// Results of `readings` by each of the contenders from number `first` on: [contender][reading].
  std::vector<std::vector<json>> measure(std::size_t first, const std::vector<Tokens>& readings,
                                         buzz::Positions positions) const {
    const std::size_t n = readings.size();
    const int whole = (std::min)(common_.config().context, o_.length);
    std::vector<json> flat = common_.results(
        common_.contenders().size() - first, n,
        [&](std::size_t c, std::size_t r) -> json {
          const Contender& contender = common_.contenders()[first + c];
          return {{"task", "perplexity"},
                  {"policy", contender.key},
                  {"rows", contender.budget.of(whole)},
                  {"positions", positions == buzz::Positions::compact ? "compact" : "logical"},
                  {"tokens", hash_of(readings[r])}};
        },
        [&](std::size_t r) { return readings[r].size(); },
        [&](std::size_t r, Members members) {
          for (std::size_t& m : members) m += first;
          const int tokens = static_cast<int>(readings[r].size());
          return read(common_.sequences(members, whole, tokens, positions), readings[r]);
        },
        common_.together());
    std::vector<std::vector<json>> results(flat.size() / n);
    for (std::size_t i = 0; i < flat.size(); ++i) results[i / n].push_back(std::move(flat[i]));
    return results;
  }

  static std::vector<Unit> units(const std::vector<json>& readings) {
    std::vector<Unit> out;
    for (const json& r : readings)
      for (std::size_t b = 0; b < r.at("nll").size(); ++b)
        out.push_back({r.at("nll")[b].get<double>(), r.at("tokens")[b].get<double>()});
    return out;
  }

  /// The units of the blocks of one bucket of `most` blocks.
  std::vector<Unit> bucket(const std::vector<json>& readings, std::size_t most, int index) const {
    std::vector<Unit> out;
    for (const json& r : readings)
      for (std::size_t b = 0; b < r.at("nll").size(); ++b)
        if (static_cast<int>(b * static_cast<std::size_t>(o_.buckets) / most) == index)
          out.push_back({r.at("nll")[b].get<double>(), r.at("tokens")[b].get<double>()});
    return out;
  }

  static std::vector<const json*> pointers(const std::vector<json>& results) {
    std::vector<const json*> out;
    for (const json& r : results) out.push_back(&r);
    return out;
  }

  static double rise(double nats) { return 100 * (std::exp(nats) - 1); }

  void within(std::vector<Table>& tables) const {
    const std::vector<Tokens> readings = pieces_of(common_, texts_, o_.pieces, o_.length);
    const auto results = measure(0, readings, buzz::Positions::logical);
    const std::string many = std::to_string(readings.size()) + " pieces of " + std::to_string(o_.length) + " tokens";
    Table table{"Perplexity of running text within the model's context, logical positions, " + many,
                "[95%: bootstrap over blocks of 256 tokens; the rise is of the same blocks, paired]",
                with_costs({{"tokens"}, {"nats/token", 4}, {"perplexity", 2}, {"rise over full %", 2}}),
                {}};
    for (std::size_t c = 0; c < results.size(); ++c) {
      const std::vector<Unit> mine = units(results[c]);
      double scored = 0;
      for (const Unit& u : mine) scored += u.weight;
      std::vector<Cell> row = cost_cells(common_.contenders()[c], pointers(results[c]));
      row.insert(row.end(), {scored, bootstrap(mine), std::exp(bootstrap(mine).value),
                             bootstrap(difference(mine, units(results[0])), rise)});
      table.rows.push_back(row);
    }
    tables.push_back(table);
    tables.push_back(by_position("Rise of perplexity over the full cache in %, by position", common_.contenders(),
                                 results, static_cast<std::size_t>(o_.length), true));
  }

  /// One column a bucket: the rise over the first contender, or nats a token.
  Table by_position(const std::string& title, const std::vector<Contender>& contenders,
                    const std::vector<std::vector<json>>& results, std::size_t length, bool risen) const {
    const std::size_t blocks = (length + block - 1) / block;
    Table table{title,
                risen ? "Columns: the first position of a bucket; the full cache's row is nats/token"
                      : "Columns: the first position of a bucket",
                with_costs({}),
                {}};
    std::vector<int> used;
    for (int b = 0; b < o_.buckets; ++b) {
      std::size_t first = 0;
      while (static_cast<int>(first * static_cast<std::size_t>(o_.buckets) / blocks) < b) ++first;
      if (static_cast<int>(first * static_cast<std::size_t>(o_.buckets) / blocks) != b || first >= blocks) continue;
      used.push_back(b);
      table.columns.push_back({std::to_string(first * block), 3});
    }
    for (std::size_t c = 0; c < results.size(); ++c) {
      std::vector<Cell> row = cost_cells(contenders[c], pointers(results[c]));
      for (int b : used) {
        const std::vector<Unit> mine = bucket(results[c], blocks, b), full = bucket(results[0], blocks, b);
        row.push_back(risen && c > 0 ? bootstrap(difference(mine, full), rise).value : bootstrap(mine).value);
      }
      table.rows.push_back(row);
    }
    return table;
  }

  void past(std::vector<Table>& tables) const {
    const std::vector<Contender> contenders(common_.contenders().begin() + 1, common_.contenders().end());  // but full
    std::vector<Tokens> readings;
    std::size_t longest = 0;
    for (const Text& t : texts_) {
      readings.push_back(piece_of(common_, t, 0, static_cast<std::size_t>(o_.stream)));
      longest = (std::max)(longest, readings.back().size());
    }
    const auto results = measure(1, readings, buzz::Positions::compact);
    Table table{"Perplexity of a stream far past the context, compact positions, " + std::to_string(longest) +
                    " tokens of " + std::to_string(readings.size()) + " text(s)",
                "[95%: bootstrap over blocks of 256 tokens; the difference is to streaming at the same budget, paired]",
                with_costs({{"tokens"}, {"nats/token", 4}, {"perplexity", 2}, {"over streaming %", 2}}),
                {}};
    for (std::size_t c = 0; c < results.size(); ++c) {
      const std::vector<Unit> mine = units(results[c]);
      double scored = 0;
      for (const Unit& u : mine) scored += u.weight;
      std::vector<Cell> row = cost_cells(contenders[c], pointers(results[c]));
      row.insert(row.end(), {scored, bootstrap(mine), std::exp(bootstrap(mine).value)});
      Cell over;
      for (std::size_t s = 0; s < results.size(); ++s)
        if (contenders[s].policy == "streaming" && contenders[s].budget.text == contenders[c].budget.text)
          over = bootstrap(difference(mine, units(results[s])), rise);
      row.push_back(over);
      table.rows.push_back(row);
    }
    tables.push_back(table);
    tables.push_back(by_position("Nats/token of the stream, by position", contenders, results, longest, false));
  }

  const Common& common_;
  PerplexityOptions o_;
  std::vector<Text> texts_;
};

}  // namespace evaluate
