// agreement: does the model say the same with less memory? Needs a text, and no labels.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/common.h"
#include "evaluate/texts.h"
#include "evaluate/twin.h"

namespace evaluate {

struct AgreementOptions {
  std::vector<std::string> texts;  // files; none: made-up documents
  int pieces = 4;                  // of each text
  int prompt = 1000;               // tokens of a piece, read in chunks
  int tokens = 250;                // then the full cache's likeliest tokens, one by one
};

class Agreement {
 public:
  Agreement(const Common& common, const AgreementOptions& options, const std::vector<Text>& texts)
      : common_(common), o_(options) {
    buzz::require_range("pieces", o_.pieces, 1, 1 << 16);
    buzz::require_range("prompt", o_.prompt, 2, common.config().context);
    buzz::require_range("tokens", o_.tokens, 1, common.config().context - o_.prompt);
    pieces_ = pieces_of(common, texts, o_.pieces, o_.prompt);
  }

  std::vector<Table> run() const {
    const std::size_t n = pieces_.size();
    const auto key = [&](const char* what, std::size_t c, std::size_t piece) -> json {
      const Contender& contender = common_.contenders()[c];
      return {{"task", what},
              {"policy", contender.key},
              {"rows", contender.budget.of(whole())},
              {"prompt", hash_of(pieces_[piece])},
              {"tokens", o_.tokens}};
    };
    const std::vector<json> full = common_.results(
        1, n, [&](std::size_t c, std::size_t p) { return key("greedy", c, p); }, [&](std::size_t) { return cost(); },
        [&](std::size_t p, const Members&) { return std::vector<json>{greedy(pieces_[p])}; }, 1);
    const std::vector<json> results = common_.results(
        common_.contenders().size(), n, [&](std::size_t c, std::size_t p) { return key("agreement", c, p); },
        [&](std::size_t) { return 3 * cost(); },
        [&](std::size_t p, const Members& members) { return compare(members, pieces_[p], full[p].get<Tokens>()); },
        common_.together());
    return {table(results)};
  }

 private:
  static constexpr std::size_t block = 25;  // tokens that the bootstrap draws as one

  std::size_t cost() const { return static_cast<std::size_t>(o_.prompt + o_.tokens); }
  int whole() const { return o_.prompt + o_.tokens; }

  /// The full cache's likeliest tokens after a piece, the first of them after the piece's last token.
  json greedy(const Tokens& piece) const {
    Sequences s = common_.sequences({0}, whole(), whole());
    s.read(piece);
    Tokens tokens;
    while (static_cast<int>(tokens.size()) < o_.tokens) {
      tokens.push_back(s.likeliest());
      s.read({tokens.back()});
    }
    return tokens;
  }

  /// Reads the same tokens with the contenders' caches and looks at what they would have said.
  std::vector<json> compare(const Members& members, const Tokens& piece, const Tokens& greedy) const {
    Sequences s = common_.sequences(members, whole(), whole());
    s.read(piece);
    std::vector<std::vector<int>> agreed(members.size());
    for (std::int32_t token : greedy) {
      for (std::size_t m = 0; m < members.size(); ++m)
        agreed[m].push_back(s.likeliest(static_cast<int>(m)) == token ? 1 : 0);
      s.read({token});
    }
    const Sizes all = common_.sizes(common_.contenders()[0], whole(), whole());
    Batch::Members caches;
    std::vector<Twin*> twins;
    for (std::size_t c : members) {
      const Contender& contender = common_.contenders()[c];
      auto twin = std::make_unique<Twin>(
          common_.config(), make_policy(common_.config(), "full", all),
          make_policy(common_.config(), contender.policy, common_.sizes(contender, whole(), whole())));
      twins.push_back(twin.get());
      caches.push_back(std::move(twin));
    }
    Sequences both(common_.model(), std::move(caches));
    both.read(piece);
    for (Twin* t : twins) t->begin();
    for (std::int32_t token : greedy) both.read({token});
    std::vector<json> results;
    for (std::size_t m = 0; m < members.size(); ++m) {
      std::vector<double> errors;
      for (int i = 0; i < common_.config().layers; ++i) errors.push_back(twins[m]->relative_error(i));
      results.push_back({{"agreed", agreed[m]}, {"errors", errors}, {"cost", cost_of(s, static_cast<int>(m))}});
    }
    return results;
  }

  Table table(const std::vector<json>& results) const {
    const std::size_t n = pieces_.size();
    Table t{
        "Agreement with the full cache over " + std::to_string(n) + " pieces: " + std::to_string(o_.prompt) +
            " tokens read, then its " + std::to_string(o_.tokens) + " greedy tokens",
        "Teacher-forced: every cache reads the full cache's tokens, and agrees where its own likeliest is the same. "
        "[95%: bootstrap over blocks of 25 tokens]\nlayer: relative error of the attention outputs over these "
        "tokens, each layer given the full cache's inputs",
        with_costs({{"tokens"}, {"agreement %", 2}}),
        {}};
    for (int i = 0; i < common_.config().layers; ++i) t.columns.push_back({"layer " + std::to_string(i), 3});
    for (std::size_t c = 0; c < common_.contenders().size(); ++c) {
      std::vector<const json*> mine;
      std::vector<Unit> units;
      std::vector<double> errors(static_cast<std::size_t>(common_.config().layers));
      int tokens = 0;
      for (std::size_t p = 0; p < n; ++p) {
        const json& r = results[c * n + p];
        mine.push_back(&r);
        const auto agreed = r.at("agreed").get<std::vector<int>>();
        for (std::size_t i = 0; i < agreed.size(); ++i) {
          if (i % block == 0) units.push_back({});
          units.back().sum += 100 * agreed[i];
          units.back().weight += 1;
          ++tokens;
        }
        for (std::size_t i = 0; i < errors.size(); ++i)
          errors[i] += r.at("errors")[i].get<double>() / static_cast<double>(n);
      }
      std::vector<Cell> row = cost_cells(common_.contenders()[c], mine);
      row.insert(row.end(), {tokens, bootstrap(units)});
      for (double e : errors) row.push_back(e);
      t.rows.push_back(row);
    }
    return t;
  }

  const Common& common_;
  AgreementOptions o_;
  std::vector<Tokens> pieces_;
};

}  // namespace evaluate
