// The demo's measurements: one text read with a full cache and with a bounded one, then questions about its end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "buzz/policy_list.h"
#include "tiny_llama/cache.h"
#include "tiny_llama/llama.h"
#include "tiny_llama/model.h"
#include "tiny_llama/reader.h"
#include "tiny_llama/reading.h"

namespace tiny_llama {

/// The model with one of the two caches.
struct Side {
  Side(const Model& model, std::unique_ptr<Cache> cache)
      : config(model.config), llama(model, std::move(cache)), reader(llama) {}

  int rows() const { return llama.cache().rows(config.layers - 1); }  // which does not slide
  std::size_t row_bytes() const {                                     // K and V of one row, all layers
    return sizeof(float) * 2 * static_cast<std::size_t>(config.kv_heads * config.head_dim * config.layers);
  }
  std::size_t bytes() const {  // allocated, all layers
    std::size_t sum = 0;
    for (int i = 0; i < llama.cache().layers(); ++i) sum += llama.cache().bytes(i);
    return sum;
  }

  const Config& config;
  Llama llama;
  Reader reader;
};

constexpr std::size_t demo_chunk = 32;  // tokens read at once

inline std::unique_ptr<Cache> full_cache(const Model& model) {
  buzz::FullOptions full;
  full.capacity = model.config.context;
  return std::make_unique<CacheOf<float>>(model.config, buzz::full(full), buzz::Positions::logical,
                                          static_cast<int>(demo_chunk));
}

/// What the demo shows unless another policy is asked for: the best that we know, in the rows that the paper's has.
constexpr const char* demo_policy = "key_outliers:rows=596,max_chunk=32";

/// A row's position is its place in the cache, so that none passes the model's context.
inline std::unique_ptr<Cache> buzz_cache(const Model& model, const buzz::Policy& policy) {
  return std::make_unique<CacheOf<float>>(model.config, policy, buzz::Positions::compact, static_cast<int>(demo_chunk));
}

struct Answers {
  Question question;
  std::string full, buzz;
};

struct Measured {
  Account full, buzz;                          // as far as the full cache holds
  Account full_after, buzz_after;              // of that, what came after the first eviction
  Account buzz_beyond;                         // what the full cache does not hold
  std::vector<double> full_steps, buzz_steps;  // seconds of each decode step
  int full_rows = 0, buzz_rows = 0;            // when the full cache is full
  std::size_t full_bytes = 0, buzz_bytes = 0;  // allocated
  std::vector<Answers> answers;                // three, of which the full cache's are right if that could be had
  int full_documents_tokens = 0;               // the last documents, that the full cache answers from
  int full_asked = 0, full_right = 0;          // questions until three were right
};

class Demo {
 public:
  using Watch = std::function<void(const Side& full, const Side& buzz)>;  // called after each chunk

  /// Model and reading must outlive it. Errors: a model whose context is less than the policy's rows.
  Demo(const Model& model, const Reading& reading, const buzz::Policy& policy)
      : model_(model), reading_(reading), full_(model, full_cache(model)), buzz_(model, buzz_cache(model, policy)) {}

  /// Once.
  Measured run(const Watch& watch) {
    Measured m;
    read_both(m, watch);
    read_on(m, watch);
    ask(m);
    return m;
  }

  /// Tokens that both caches read.
  std::size_t held() const { return std::min(reading_.tokens.size(), static_cast<std::size_t>(model_.config.context)); }

 private:
  static constexpr std::size_t steps = 64;          // decode steps timed
  static constexpr std::size_t answer_tokens = 12;  // at most
  static constexpr std::size_t asked = 3;           // questions

  std::vector<std::int32_t> tokens(std::size_t begin, std::size_t end) const {
    const auto at = reading_.tokens.begin();
    return {at + static_cast<std::ptrdiff_t>(begin), at + static_cast<std::ptrdiff_t>(end)};
  }

  /// Both caches read the same chunk in turn, so that noise hits both alike; the last tokens that the full cache holds
  /// one by one, to time a decode step.
  void read_both(Measured& m, const Watch& watch) {
    const std::size_t decoded = held() - std::min(held(), steps);
    Account full_before, buzz_before;  // when the bounded cache evicted for the first time
    bool evicted = false;
    for (std::size_t at = 0; at < held();) {
      const std::size_t next = at < decoded ? std::min(at + demo_chunk, decoded) : at + 1;
      const std::vector<std::int32_t> chunk = tokens(at, next);
      const double full_seconds = timed(full_, chunk), buzz_seconds = timed(buzz_, chunk);
      if (at >= decoded) {
        m.full_steps.push_back(full_seconds);
        m.buzz_steps.push_back(buzz_seconds);
      }
      if (!evicted) {
        full_before = full_.reader.account();
        buzz_before = buzz_.reader.account();
      }
      evicted = evicted || buzz_.rows() < static_cast<int>(next);
      watch(full_, buzz_);
      at = next;
    }
    m.full = full_.reader.account();
    m.buzz = buzz_.reader.account();
    m.full_after = m.full - full_before;
    m.buzz_after = m.buzz - buzz_before;
    m.full_rows = full_.rows();
    m.buzz_rows = buzz_.rows();
    m.full_bytes = full_.bytes();
    m.buzz_bytes = buzz_.bytes();
  }

  void read_on(Measured& m, const Watch& watch) {
    const std::size_t all = reading_.tokens.size();
    for (std::size_t at = held(); at < all; at += demo_chunk) {
      buzz_.reader.read(tokens(at, std::min(at + demo_chunk, all)));
      watch(full_, buzz_);
    }
    m.buzz_beyond = buzz_.reader.account() - m.buzz;
  }

  static double timed(Side& side, const std::vector<std::int32_t>& chunk) {
    const double before = side.reader.account().seconds;
    side.reader.read(chunk);
    return side.reader.account().seconds - before;
  }

  /// What counts is what the bounded cache keeps of the full one's answers: the model itself knows few. So a new full
  /// cache reads as many of the last documents as it has room for, and is asked until three answers are right; then the
  /// bounded cache, which has read everything, is asked these three.
  void ask(Measured& m) {
    Side full(model_, full_cache(model_));
    const auto context = static_cast<std::size_t>(model_.config.context);
    full.reader.read(last_documents(model_.tokenizer, reading_.documents, context - context / 4));
    m.full_documents_tokens = full.reader.account().tokens;
    std::vector<Answers> right, wrong;
    for (const Question& q : reading_.questions) {
      const std::size_t room = model_.tokenizer.encode_more(q.text).size() + answer_tokens + 2;
      if (right.size() == asked || static_cast<std::size_t>(full.reader.account().tokens) + room > context) break;
      const std::string text = answer(full, q);
      (text == q.answer ? right : wrong).push_back({q, text, ""});
    }
    m.full_right = static_cast<int>(right.size());
    m.full_asked = m.full_right + static_cast<int>(wrong.size());
    m.answers = std::move(right);
    for (std::size_t i = 0; i < wrong.size() && m.answers.size() < asked; ++i) m.answers.push_back(wrong[i]);
    for (Answers& a : m.answers) a.buzz = answer(buzz_, a.question);
  }

  /// The likeliest words after the question, up to the full stop.
  std::string answer(Side& side, const Question& question) const {
    side.reader.read(model_.tokenizer.encode_more(question.text));
    std::string text;
    for (std::size_t i = 0; i < answer_tokens; ++i) {
      const std::int32_t next = side.reader.likeliest();
      const std::string piece = model_.tokenizer.piece(next);
      const std::size_t stop = piece.find_first_of(".\n");
      text += piece.substr(0, stop);
      if (stop != std::string::npos || next == model_.tokenizer.vocabulary().eos) break;
      side.reader.read({next});
    }
    side.reader.read(model_.tokenizer.encode_more(".\n"));
    return text;
  }

  const Model& model_;
  const Reading& reading_;
  Side full_, buzz_;
};

}  // namespace tiny_llama
