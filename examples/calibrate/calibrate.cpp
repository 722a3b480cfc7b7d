// buzz-calibrate: learns from texts which of a model's rows will be looked at, in closed form, and writes the weights.
#include "calibrate/calibrate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "evaluate/jobs.h"
#include "thread_pool.h"
#include "tiny_llama/model.h"
#include "tiny_llama/program.h"
#include "tiny_llama/text_file.h"

namespace {

using namespace calibrate;

struct Arguments {
  std::string model, output;
  std::vector<std::string> texts, held_out;
  int segments = 8, held_out_segments = 2;
  std::optional<int> tokens;
  double ridge = 0.01;
  ReplayOptions replay;
};

void declare(CLI::App& app, Arguments& a) {
  a.replay.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  app.add_option("model", a.model, "A GGUF file of the llama or gemma3 architecture")->required();
  app.add_option("texts", a.texts, "Files of running text, such as the model shall read")->required();
  app.add_option("-o,--output", a.output, "The file of weights to write")->required();
  app.add_option("--segments", a.segments,
                 "Stretches of the texts to read, spread evenly; a fourth of them is held out")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  app.add_option("--tokens", a.tokens, "Tokens of a segment; 1536, or what the model's context has room for")
      ->check(CLI::Range(2 * sink_rows, 1 << 20));
  app.add_option("--held-out", a.held_out, "Texts to try the weights on, in place of every fourth segment");
  app.add_option("--ridge", a.ridge, "Added to each feature's variance of 1")
      ->check(CLI::Range(1e-9, 1e9))
      ->capture_default_str();
  app.add_option("--threads", a.replay.threads, "Threads to work on")->check(CLI::Range(1, 256))->capture_default_str();
}

std::vector<Tokens> read_texts(const Model& model, const std::vector<std::string>& files) {
  std::vector<Tokens> texts;
  for (const std::string& file : files) texts.push_back(model.tokenizer.encode_more(tiny_llama::read_text(file)));
  return texts;
}

/// Tokens of a segment: what was asked for, or what fits beside the request and a piece.
int tokens_of(const Model& model, const Arguments& a) {
  if (a.tokens) return *a.tokens;
  const int room = model.config.context - static_cast<int>(model.tokenizer.encode_more(a.replay.request).size());
  return (std::min)(1536, (std::max)(room - a.replay.piece, room / 2));
}

void print_fit(const Config& c, const LayerSums& fitted, const LayerSums& held_out, double ridge) {
  std::printf("correlation of the weights' estimate with the log of attention, mean over heads\n");
  std::printf("%5s %9s %9s\n", "layer", "fitted", "held out");
  double sum = 0, unseen = 0;
  int count = 0;
  for (int i = 0; i < c.layers; ++i) {
    if (!fitted.has(i)) continue;
    const std::vector<Line> lines = fitted.fit(i, ridge);
    const double own = fitted.correlation(i, lines), other = held_out.correlation(i, lines);
    std::printf("%5d %9.3f %9.3f\n", i, own, other);
    sum += own;
    unseen += other;
    ++count;
  }
  std::printf("%5s %9.3f %9.3f\n", "mean", sum / count, unseen / count);
}

void run(const Arguments& a) {
  const Model model = tiny_llama::read_model(a.model);
  const int tokens = tokens_of(model, a);
  std::vector<Tokens> segments = segments_of(model, read_texts(model, a.texts), a.segments, tokens);
  const std::size_t own = segments.size();
  if (!a.held_out.empty())
    for (Tokens& t : segments_of(model, read_texts(model, a.held_out), a.held_out_segments, tokens))
      segments.push_back(std::move(t));
  const auto is_held_out = [&](std::size_t i) {
    return a.held_out.empty() ? i % 4 == (std::min)(own - 1, std::size_t{3}) : i >= own;
  };
  // A path that cannot be written is told before minutes of work.
  tiny_llama::write_text("output", a.output + ".tmp", "");
  std::remove((a.output + ".tmp").c_str());

  examples::ThreadPool pool(a.replay.threads);
  LayerSums fitted(model.config), held_out(model.config);
  {
    evaluate::Progress progress(2 * segments.size() * static_cast<std::size_t>(tokens), 0);
    for (std::size_t i = 0; i < segments.size(); ++i)
      (is_held_out(i) ? held_out : fitted)
          .add(replay(model, segments[i], a.replay, pool, [&](std::size_t n) { progress.add(n); }), pool);
  }
  print_fit(model.config, fitted, held_out, a.ridge);
  if (a.held_out.empty()) fitted += held_out;
  const buzz::Calibration calibration = calibration_of(model.config, fitted, a.ridge);
  buzz::save_file(calibration, a.output);
  std::printf("%s: weights of %s from %zu segments of %d tokens, checksum %016llx\n", a.output.c_str(),
              tiny_llama::printable(model.config.name).c_str(), own, tokens,
              static_cast<unsigned long long>(calibration.checksum()));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Learns which rows of a model's KV cache will be looked at, and writes the weights.", "buzz-calibrate");
  Arguments arguments;
  declare(app, arguments);
  return tiny_llama::run_program(app, argc, argv, [&] { run(arguments); });
}
