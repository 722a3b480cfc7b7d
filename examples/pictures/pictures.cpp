// buzz-pictures: a page that explains BUZZ with pictures of real runs over our model.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "buzz/policies.h"
#include "evaluate/html.h"
#include "pictures/drawings.h"
#include "tiny_llama/documents.h"
#include "tiny_llama/program.h"
#include "tiny_llama/text_file.h"

namespace {

using namespace pictures;
using tiny_llama::grouped;

struct Arguments {
  std::string model = BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf", out = "pages.html";
  int tokens = 2000;
};

class Pages {
 public:
  explicit Pages(const Arguments& a)
      : model_(tiny_llama::read_model(a.model)), layer_(model_.config.layers / 2), page_("BUZZ in pictures") {
    buzz::require_range("tokens", a.tokens, 600, model_.config.context);
    tiny_llama::Random random(1);
    std::string text;
    while (tokens_.size() < static_cast<std::size_t>(a.tokens)) {
      text += tiny_llama::make_documents(random).text;
      tokens_ = model_.tokenizer.encode(text);
    }
    tokens_.resize(static_cast<std::size_t>(a.tokens));
  }

  std::string html() {
    page_.paragraph(
        "A model's cache gets a row of keys and values with each token, in each layer. BUZZ (arXiv 2410.23079) bounds "
        "it: now and then it evicts rows that got little attention, some of every stretch of the text, and thins what "
        "is old again. All pictures here are of this library over our own model (" +
        grouped(model_.parameters) + " parameters) while it reads " + grouped(tokens_.size()) +
        " tokens of made-up documents: layer " + std::to_string(layer_ + 1) + " of " +
        std::to_string(model_.config.layers) + ", " + std::to_string(model_.config.kv_heads) + " KV heads.");
    const Watch paper = read(model_, tokens_, buzz::beehive(buzz::BeehiveOptions::paper()), 1, layer_);
    four_regions(paper);
    one_eviction();
    who_keeps_what();
    rows_over_time(paper);
    return page_.text();
  }

 private:
  void four_regions(const Watch& paper) {
    page_.heading("Four regions");
    page_.paragraph("The rows lie oldest first. Their numbers never depend on scores and are the same for every head.");
    page_.plot("", key());
    if (paper.evictions.empty()) return;
    const Eviction& e = paper.evictions.back();
    page_.plot("At the paper's sizes, before an eviction (after " + grouped(e.before.tokens) +
                   " tokens): " + in_words(e.before.regions),
               bar(e.before.regions, paper.capacity));
    page_.plot("After it: " + in_words(e.after.regions), bar(e.after.regions, paper.capacity));
  }

  void one_eviction() {
    buzz::BeehiveOptions o;
    o.sink = 4;
    o.window = 8;
    o.threshold = 30;
    const Watch watch = read(model_, Tokens(tokens_.begin(), tokens_.begin() + 120), buzz::beehive(o), 1, layer_);
    const Eviction& e = watch.evictions[2];
    const buzz::Regions& r = e.before.regions;
    const int hive_stride = buzz::default_hive_stride(o.stride);
    std::vector<int> chunks;
    for (int row = r.sink; row < r.sink + r.hive; row += hive_stride) chunks.push_back(row);
    for (int row = r.sink + r.hive; row < r.sink + r.middle(); row += o.stride) chunks.push_back(row);
    chunks.push_back(r.sink + r.middle());
    page_.heading("One eviction, row by row");
    page_.paragraph("The same with sizes that can be drawn: sink " + std::to_string(o.sink) + ", window " +
                    std::to_string(o.window) + ", and an eviction as soon as more than " + std::to_string(o.threshold) +
                    " rows lie between them. This is KV head 0 after " + std::to_string(e.before.tokens) +
                    " tokens. A bar is a row's score: all the attention that it got so far (the sink's goes on past "
                    "the edge). Lines divide the chunks.");
    page_.paragraph("Of the unfiltered rows the best of each " + std::to_string(o.stride) +
                    " stays, ties to the older; of the hive the first of each " + std::to_string(hive_stride) +
                    ", whatever the scores; what is struck out goes. Those that stay are the new hive: " +
                    std::to_string(r.middle()) + " rows become " + std::to_string(e.after.regions.hive) +
                    ". Scores that nobody will read again are set to 0, as by the authors.");
    page_.begin_row();
    page_.plot("Before: " + in_words(r), rows("The rows before the eviction", e.before, 0, tokens_, model_.tokenizer,
                                              e.after.heads[0].positions, chunks));
    page_.plot("After: " + in_words(e.after.regions),
               rows("The rows after it", e.after, 0, tokens_, model_.tokenizer, e.after.heads[0].positions, {}));
    page_.end_row();
  }

  void strip_of(const buzz::Policy& policy, const std::string& about, int call) {
    const Watch w = read(model_, tokens_, policy, call, layer_);
    page_.plot(policy.name + ": " + about + ". " + std::to_string(w.end.regions.rows()) + " rows a head, at most " +
                   std::to_string(w.capacity) + " at any time.",
               strip(w.end, static_cast<int>(tokens_.size())));
  }

  void who_keeps_what() {
    const int budget = static_cast<int>(tokens_.size()) / 5, call = 32;
    page_.heading("Who keeps what");
    page_.paragraph(
        "After " + grouped(tokens_.size()) + " tokens, read " + std::to_string(call) +
        " at a time, with a fifth of the full cache's rows: the positions that each policy still holds, the "
        "oldest on the left; the stronger, the more of the heads hold it.");
    strip_of(buzz::beehive(buzz::BeehiveOptions::for_rows(budget, call)),
             "BUZZ, the best of every stretch, the fewer the older, until none is left", call);
    strip_of(buzz::heavy_hitter(buzz::HeavyHitterOptions::for_rows(budget, call)),
             "what got the most attention, wherever it is", call);
    strip_of(buzz::streaming(buzz::StreamingOptions::for_rows(budget, call)), "the first and the newest rows", call);
    strip_of(buzz::key_outliers(buzz::KeyOutliersOptions::for_rows(budget, call)),
             "a long window, and behind it the keys least like the others, the same for every head", call);
    page_.paragraph("What that costs in accuracy, buzz-evaluate measures: the README has the table.");
  }

  void rows_over_time(const Watch& paper) {
    evaluate::Series full{"full cache", {}}, held{"BUZZ", {}}, bound{"its bound", {}};
    for (const auto& [tokens, rows] : paper.rows) held.points.push_back({tokens, rows});
    for (const double tokens : {0.0, static_cast<double>(tokens_.size())}) {
      full.points.push_back({tokens, tokens});
      bound.points.push_back({tokens, paper.capacity});
    }
    page_.heading("Rows over time");
    page_.paragraph("At the paper's sizes BUZZ evicted " + std::to_string(paper.evictions.size()) +
                    " times and never held more than " + std::to_string(paper.capacity) +
                    " rows, which is what it allocates, once.");
    page_.plot("Rows held in the layer, by tokens read",
               evaluate::line_plot("Rows held, by tokens read", "tokens read", "rows", {full, held, bound}, 440));
  }

  tiny_llama::Model model_;
  int layer_;
  Tokens tokens_;
  evaluate::Page page_;
};

void run(const Arguments& a) {
  tiny_llama::write_text("out", a.out, Pages(a).html());
  std::printf("%s\n", a.out.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Explains BUZZ on one HTML page, with pictures of real runs.", "buzz-pictures");
  Arguments a;
  app.add_option("--model", a.model, "A GGUF file (llama architecture; F32, F16 or Q8_0)")->capture_default_str();
  app.add_option("--tokens", a.tokens, "Tokens to read, 600 to the model's context")->capture_default_str();
  app.add_option("--out", a.out, "The page")->capture_default_str();
  return tiny_llama::run_program(app, argc, argv, [&] { run(a); });
}
