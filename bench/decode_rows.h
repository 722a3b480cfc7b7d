// Rows 10 to 12 and 15 of the table: a decode step, over time, over threads and in a whole model.
#pragma once

#include <benchmark/benchmark.h>

#include "attention_rows.h"
#include "problem.h"
#include "ratio.h"
#include "thread_pool.h"
#include "tiny_llama/cache_options.h"
#include "tiny_llama/reader.h"

namespace bench {

/// A cache at the paper's sizes that decodes random tokens.
class Stream {
 public:
  explicit Stream(const Layer& layer)
      : layer_(layer),
        cache_(buzz::Shape{layer.query_heads, layer.kv_heads, layer.head_dim}, buzz::beehive()),
        q_(random_values<float>(count(1, layer.query_heads, layer.head_dim), 11)),
        kv_(random_values<float>(count(1, layer.kv_heads, layer.head_dim), 12)),
        out_(q_.size()) {}

  void step() {
    const buzz::View<const float> kv(kv_.data(), 1, layer_.kv_heads, layer_.head_dim);
    cache_.attend(buzz::View<const float>(q_.data(), 1, layer_.query_heads, layer_.head_dim), kv, kv,
                  buzz::view(out_, 1, layer_.query_heads, layer_.head_dim));
  }
  void steps(int n) {
    for (int i = 0; i < n; ++i) step();
  }

 private:
  Layer layer_;
  buzz::BuzzCache<float> cache_;
  std::vector<float> q_, kv_, out_;
};

/// buzz-generate's step, that many tokens on.
class Generation {
 public:
  Generation(const tiny_llama::Model& model, const char* policy, int history)
      : vocab_(static_cast<std::int32_t>(model.tokenizer.vocabulary().tokens.size())),
        llama_(model, tiny_llama::make_cache(model.config, options(policy), model.config.context)),
        reader_(llama_) {
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < history; ++i) tokens.push_back(i * 37 % vocab_);
    reader_.read(tokens);
  }
  void step() { reader_.read({reader_.likeliest()}); }

 private:
  static tiny_llama::CacheOptions options(const char* policy) {
    tiny_llama::CacheOptions o;
    o.policy = policy;
    return o;
  }

  std::int32_t vocab_;
  tiny_llama::Llama llama_;
  tiny_llama::Reader reader_;
};

/// The machine's second core, which is not always there where cores are lent by the hour: a neighbour or the other half
/// of a core takes it away from two threads, and nothing from one.
class SecondCore {
 public:
  explicit SecondCore(examples::ThreadPool& pool) : pool_(pool) {}

  /// A side that runs when both cores are there, before and after it: arithmetic in the first-level cache on two
  /// threads has to take at most 1 / 1.9 of one thread's time. After a second it no longer looks out for that.
  Side with(Side side) {
    return [this, side] {
      double result = 0, spent = 0;
      for (bool good = false; !good && spent < 1;) {
        spent += seconds([&] {
          const bool before = is_there();
          result = side();
          good = before && is_there();
        });
      }
      return result;
    };
  }

 private:
  bool is_there() {
    pool_(2, buzz::Task(work_));  // which wakes the threads
    const double two = seconds([&] { pool_(2, buzz::Task(work_)); });
    const double one = seconds([&] {
      work_(0);
      work_(1);
    });
    return one >= 1.9 * two;
  }

  struct Work {
    void operator()(int i) {
      auto& x = values[i];
      for (int round = 0; round < 20000; ++round) x = x * 0.5f + 1;
      benchmark::DoNotOptimize(x.data());
    }
    Eigen::Array<float, 256, 1> values[2] = {Eigen::Array<float, 256, 1>::Zero(), Eigen::Array<float, 256, 1>::Zero()};
  };

  examples::ThreadPool& pool_;
  Work work_;
};

inline void decode_rows(std::vector<Ratio>& table) {
  const int cycle = 10 * 267;  // whole rounds between evictions, nearly
  {
    Decode<float> full(grouped, long_rows);
    Stream buzzing(grouped);
    buzzing.steps(cycle);
    table.push_back(compare(
        "10 decode step at 32768 tokens, full / BUZZ, " + grouped.name(), Goal::at_least(45),
        repeated([&] { full.attend(); }), [&] { return seconds([&] { buzzing.steps(cycle / 10); }) / (cycle / 10); }, 1,
        20));
  }
  {
    // One cache 1,000,000 tokens on, beside one that is at its 1,000th.
    Stream old(small_layer);
    old.steps(1000000);
    Stream young(small_layer);
    young.steps(1000);
    const auto side = [&](Stream& s) -> Side { return [&] { return seconds([&] { s.steps(cycle); }) / cycle; }; };
    table.push_back(compare("11 a token at the 1,000,000th / at the 1,000th, " + small_layer.name(),
                            Goal::at_most(1.05), side(old), side(young), 1, 30));
  }
  examples::ThreadPool pool(2);
  SecondCore second(pool);
  for (int rows : {paper_rows, long_rows}) {
    Decode<float> one(grouped, rows), two(grouped, rows, 2);
    table.push_back(compare("12 one thread / two, " + at(grouped, rows), Goal::at_least(rows == long_rows ? 1.8 : 1.5),
                            awake(repeated([&] { one.attend(); })),
                            second.with(awake(repeated([&] { two.attend(pool); })))));
  }
  tiny_llama::Model model = tiny_llama::read_model(BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf");
  model.config.context = 1 << 14;  // what is said does not count here
  Generation full(model, "full", 8000), buzzing(model, "beehive", 8000);
  table.push_back(compare("15 buzz-generate at 8,000 tokens, tokens/s, BUZZ / full", Goal::none(),
                          repeated([&] { full.step(); }), repeated([&] { buzzing.step(); })));
}

}  // namespace bench
