// The pages that people read: every code block is compiled, run, or names what there is; every link leads somewhere.
// What blocks print is compared where the programs are (examples/CMakeLists.txt).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "buzz/adapters/llama.h"
#include "buzz/policy_list.h"
#include "fake_llama.h"
#include "typed.h"

namespace {

namespace fs = std::filesystem;

const fs::path root = fs::path(BUZZ_TEST_DIR).parent_path();
const std::vector<std::string> pages = {"README.md",
                                        "include/buzz/README.md",
                                        "include/buzz/KNOBS.md",
                                        "include/buzz/LIMITS.md",
                                        "include/buzz/MODELS.md",
                                        "include/buzz/INSTALL.md",
                                        "include/buzz/cuda/README.md",
                                        "examples/README.md",
                                        "examples/evaluate/README.md",
                                        "examples/tiny_llama/README.md",
                                        "examples/tiny_llama/model/README.md",
                                        "tests/README.md",
                                        "tests/golden/README.md",
                                        "bench/README.md",
                                        ".github/CONTRIBUTING.md"};

std::string read(const fs::path& file) {
  std::ifstream stream(root / file, std::ios::binary);
  EXPECT_TRUE(stream) << file;
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
}

struct Block {
  std::string page, language;  // that of an indented one is ""
  std::vector<std::string> lines;
};

/// Fenced blocks, and stretches that are indented by four after an empty line.
std::vector<Block> blocks() {
  std::vector<Block> found;
  for (const std::string& page : pages) {
    bool fenced = false, indented = false, empty = true;
    for (const std::string& line : lines_of(read(page))) {
      if (line.compare(0, 3, "```") == 0) {
        fenced = !fenced;
        if (fenced) found.push_back({page, line.substr(3), {}});
      } else if (fenced) {
        found.back().lines.push_back(line);
      } else if (line.compare(0, 4, "    ") == 0 && (indented || empty)) {
        if (!indented) found.push_back({page, "", {}});
        indented = true;
        found.back().lines.push_back(line.substr(4));
      } else if (!line.empty()) {
        indented = false;
      }
      empty = line.empty();
    }
  }
  return found;
}

std::string text_of(const std::string& folder, const std::string& name_end) {
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
    const std::string name = entry.path().filename().string();
    if (name.size() >= name_end.size() && name.compare(name.size() - name_end.size(), std::string::npos, name_end) == 0)
      text += read(entry.path());
  }
  return text;
}

/// Are the block's lines neighbours in the source, indentation apart?
bool is_part_of(const std::vector<std::string>& block, const std::string& source) {
  std::string wanted = "\n", all = "\n";
  for (const std::string& line : block) wanted += trimmed(line) + "\n";
  for (const std::string& line : lines_of(source)) all += trimmed(line) + "\n";
  return all.find(wanted) != std::string::npos;
}

const std::string& example_sources() {
  static const std::string text = text_of("examples", ".cpp") + text_of("examples", ".cu") + text_of("examples", ".h");
  return text;
}
const std::string& cmake_files() {
  static const std::string text = read("CMakeLists.txt") + text_of(".cmake", ".cmake") +
                                  text_of("examples", "CMakeLists.txt") + text_of("tests", "CMakeLists.txt") +
                                  text_of("bench", "CMakeLists.txt");
  return text;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool is_target(const std::string& name) {
  for (const char* kind : {"add_executable(", "add_custom_target("})
    if (has(cmake_files(), kind + name + " ")) return true;
  if (name.compare(0, 5, "fuzz_") == 0) return fs::exists(root / "tests/fuzz" / (name.substr(5) + ".cpp"));
  return false;
}

bool is_preset(const std::string& name) {
  const nlohmann::json presets = nlohmann::json::parse(read("CMakePresets.json"));
  for (const auto& preset : presets.at("workflowPresets"))
    if (preset.at("name") == name) return true;
  return false;
}

/// What is wrong with a command of a page; empty: nothing.
std::string fault(const std::string& command) {
  std::istringstream stream(command);
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  if (words.empty()) return "";
  const std::string& program = words[0];
  const auto after = [&](const std::string& option) {
    const auto at = std::find(words.begin(), words.end(), option);
    return at == words.end() || std::next(at) == words.end() ? "" : *std::next(at);
  };
  if (program == "cmake") {
    if (words.size() > 1 && words[1] == "--workflow") return is_preset(after("--preset")) ? "" : "no such preset";
    if (words.size() > 1 && words[1] == "--build") {
      const std::string target = after("--target");
      return target.empty() || is_target(target) ? "" : "no such target";
    }
    for (const std::string& word : words)
      if (word.compare(0, 6, "-DBUZZ") == 0 &&
          !has(cmake_files(), "option(" + word.substr(2, word.find('=') - 2) + " "))
        return "no option " + word;
    return "";
  }
  if (program == "apt-get") {
    for (auto word = words.begin() + 1; word != words.end(); ++word)
      if (*word != "update" && *word != "install" && *word != "-y" && !has(read(".ci/run"), " " + *word)) return *word;
    return "";
  }
  if (program == "bash") return fs::exists(root / words.at(1)) ? "" : "no such script";
  if (program == "mkdir") return "";
  if (program.compare(0, 6, "build/") == 0) {
    const std::string name = fs::path(program).filename().string();
    return is_target(name) || has(cmake_files(), "buzz_example(" + name.substr(5) + " ") ? "" : "no such program";
  }
  if (program.compare(0, 5, "buzz-") == 0) {
    if (!has(cmake_files(), "buzz_example(" + program.substr(5) + " ")) return "no such program";
    for (std::string word : words) {
      word.erase(std::remove_if(word.begin(), word.end(), [](char c) { return c == '[' || c == ']'; }), word.end());
      if (word.compare(0, 2, "--") == 0 && !has(example_sources(), "\"" + word + "\"")) return "no option " + word;
    }
    if (program == "buzz-evaluate" && !has(example_sources(), "\"" + words.at(1) + "\"")) return "no such task";
    return "";
  }
  return "an unknown command";
}

/// The commands of a line, comments apart.
std::vector<std::string> commands(std::string line) {
  line = line.substr(0, line.find(" # "));
  line = line.substr(0, line.find("   #"));
  std::vector<std::string> found;
  for (std::size_t at; (at = line.find("&&")) != std::string::npos; line = line.substr(at + 2))
    found.push_back(line.substr(0, at));
  found.push_back(line);
  return found;
}

bool is_cpp(const Block& b) {
  return b.language == "cpp" || (b.language.empty() && std::any_of(b.lines.begin(), b.lines.end(), [](const auto& l) {
                                   return !l.empty() && (l.back() == ';' || l.find(";  //") != std::string::npos);
                                 }));
}

// The llama.cpp of the pages, which is installed in few places.
using llama_context = fake::Context;
using llama_context_params = fake::Params;
using llama_model = fake::Context;  // what a context is made of, here
llama_context* llama_init_from_model(llama_model* made, const llama_context_params& params) {
  made->params = params;
  return made;
}

TEST(Pages, LlamaSnippetEvictsForEver) {
  fake::Context fake;
  fake.n_ctx = 512;
  fake.cells.resize(512);
  llama_model* model = &fake;
  llama_context_params params;
  const fake::Batch batch{32};

  const buzz::Policy policy = buzz::policy("heavy_hitter:rows=512,max_chunk=32");
  buzz::LlamaEviction<llama_context> eviction(policy, /*most tokens of a call*/ 32);
  eviction.attach(params);  // llama_context_params, before the context is made
  eviction.begin(llama_init_from_model(model, params));
  eviction.decode(batch);  // in place of llama_decode(context, batch), for ever

  for (int call = 1; call < 40; ++call) ASSERT_EQ(eviction.decode(batch), 0);
  EXPECT_EQ(eviction.report().tokens, 40 * 32);
  EXPECT_GT(eviction.report().evictions, 0);
}

/// A batch whose sequences were padded from the left to one length, as one layer of one sequence sees it.
struct PaddedLayer {
  static constexpr int pads = 5, tokens = 40, heads = 1, dim = 4;
  std::vector<float> q, k, v, out;

  PaddedLayer() : q(tokens * heads * dim), k(q), v(q), out(q) {
    for (std::size_t i = 0; i < q.size(); ++i) {
      const bool pad = i < pads * heads * dim;  // any value
      q[i] = std::sin(static_cast<float>(i));
      k[i] = pad ? 0.5f : std::cos(3 * static_cast<float>(i));
      v[i] = pad ? 9 : std::sin(2 * static_cast<float>(i));
    }
  }
  static typed::Beehive::Options options() {
    typed::Beehive::Options o;
    o.sink = 3;
    o.window = 6;
    o.threshold = 8;
    return o;
  }
  typed::Cache<float> cache() const { return typed::Cache<float>({heads, heads, dim, tokens}, options(), {1e4}); }
  buzz::View<const float> from(const std::vector<float>& x, int first, int count) const {
    return {x.data() + first * heads * dim, count, heads, dim};
  }
  /// Tokens [first, tokens), one a call; returns the last one's output.
  std::vector<float> feed(typed::Cache<float>& cache, int first) {
    for (int t = first; t < tokens; ++t)
      cache.attend(from(q, t, 1), from(k, t, 1), from(v, t, 1), buzz::View<float>(out.data(), 1, heads, dim));
    return {out.begin(), out.begin() + heads * dim};
  }
};
std::vector<int> positions_of(const typed::Cache<float>& cache) {
  return {cache.positions(0).begin(), cache.positions(0).end()};
}

TEST(Pages, LeftPadsThatAreAppendedTakeTheSink) {
  PaddedLayer layer;
  auto padded = layer.cache(), plain = layer.cache();
  const std::vector<float> with = layer.feed(padded, 0), without = layer.feed(plain, PaddedLayer::pads);
  EXPECT_EQ(padded.next_position(), plain.next_position() + PaddedLayer::pads) << "every position is later";
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(padded.positions(0)[r], r);
    EXPECT_EQ(padded.values().row(0, r)[0], 9) << "a pad";
    EXPECT_NE(plain.values().row(0, r)[0], 9) << "the sequence's first tokens";
  }
  EXPECT_NE(with, without) << "pads were attended to";
  // Where they have to be appended, pins hold the first tokens; pads stay all the same.
  auto pinned = layer.cache();
  pinned.pin(PaddedLayer::pads, 3);
  layer.feed(pinned, 0);
  const std::vector<int> held = positions_of(pinned);
  for (int p : {0, 1, 2, 5, 6, 7}) EXPECT_EQ(std::count(held.begin(), held.end(), p), 1) << p;
  const std::vector<int> lost = positions_of(padded);
  EXPECT_EQ(std::count(lost.begin(), lost.end(), 6) + std::count(lost.begin(), lost.end(), 7), 0) << "not pinned";
}

TEST(Pages, LeftPadsThatAreLeftOutChangeNothing) {
  constexpr int pads = PaddedLayer::pads, tokens = 20, heads = PaddedLayer::heads, dim = PaddedLayer::dim;
  PaddedLayer layer;
  const std::vector<float>&k = layer.k, &v = layer.v;
  const std::vector<float> unpadded_k(k.begin() + pads * heads * dim, k.end()),
      unpadded_v(v.begin() + pads * heads * dim, v.end());
  auto cache = layer.cache(), plain = layer.cache();

  const std::ptrdiff_t row = heads * dim;  // of a batch [tokens, heads, dim] whose first `pads` tokens are pads
  cache.append(buzz::View<const float>(k.data() + pads * row, tokens - pads, heads, dim),
               buzz::View<const float>(v.data() + pads * row, tokens - pads, heads, dim));

  plain.append(buzz::View<const float>(unpadded_k.data(), tokens - pads, heads, dim),
               buzz::View<const float>(unpadded_v.data(), tokens - pads, heads, dim));
  EXPECT_EQ(cache.next_position(), tokens - pads);
  for (auto* each : {&cache, &plain}) {
    each->attend(layer.from(layer.q, pads, tokens - pads),
                 buzz::View<float>(layer.out.data(), tokens - pads, heads, dim));
    each->observe();
    each->evict();
    layer.feed(*each, tokens);
  }
  std::ostringstream one, other;
  cache.save(one);
  plain.save(other);
  EXPECT_EQ(one.str(), other.str()) << "rows, scores and positions, bit for bit";
  EXPECT_EQ(cache.positions(0)[2], 2);
}

TEST(Pages, CppBlocksAreCompiled) {
  const std::string sources = example_sources() + read("tests/pages_test.cpp") + read("tests/tutorial_test.cpp") +
                              read("tests/model_families_test.cpp");
  int found = 0;
  for (const Block& b : blocks()) {
    if (!is_cpp(b)) continue;
    ++found;
    EXPECT_TRUE(is_part_of(b.lines, sources)) << b.page << ": in no source: " << b.lines.at(0);
  }
  EXPECT_GE(found, 4);
}

TEST(Pages, CommandsNameWhatThereIs) {
  int found = 0;
  for (const Block& b : blocks()) {
    if (is_cpp(b) || (!b.language.empty() && b.language != "sh")) continue;
    for (const std::string& line : b.lines)
      for (const std::string& command : commands(line)) {
        ++found;
        EXPECT_EQ(fault(command), "") << b.page << ": " << command;
      }
  }
  EXPECT_GE(found, 12);
  EXPECT_NE(fault("cmake --workflow --preset tests"), "");
  EXPECT_NE(fault("cmake --build build/test --target nothing"), "");
  EXPECT_NE(fault("buzz-evaluate questions --budget 40%"), "");
  EXPECT_NE(fault("apt-get install -y libeigen4-dev"), "");
}

TEST(Pages, CommandsInTheTextNameWhatThereIs) {
  int found = 0;
  const std::regex span("`([^`]+)`");
  for (const std::string& page : pages) {
    std::string text;
    bool fenced = false;
    for (const std::string& line : lines_of(read(page))) {
      if (line.compare(0, 3, "```") == 0)
        fenced = !fenced;
      else if (!fenced)
        text += line + " ";
    }
    for (std::sregex_iterator at(text.begin(), text.end(), span), end; at != end; ++at) {
      const std::string command = (*at)[1];
      if (command.compare(0, 8, "cmake --") != 0 || command.compare(0, 15, "cmake --install") == 0) continue;
      ++found;
      EXPECT_EQ(fault(command), "") << page << ": " << command;
    }
  }
  EXPECT_GE(found, 5);
}

TEST(Pages, OtherBlocksHaveATestOfTheirOwn) {
  const std::string tests = read("examples/CMakeLists.txt");
  int printed = 0;
  for (const Block& b : blocks()) {
    if (b.language.empty() || b.language == "cpp" || b.language == "sh") continue;
    const std::string& first = b.lines.at(0);
    if (b.language == "cmake") {
      EXPECT_TRUE(has(read("tests/consumers/readme/CMakeLists.txt"), "```cmake")) << first;
    } else if (b.language == "text" && first.compare(0, 2, "$ ") == 0) {
      EXPECT_TRUE(has(tests, "buzz_printed(" + first.substr(2)) || has(tests, "\"" + first.substr(2) + "\"") ||
                  has(tests, " " + first.substr(2) + " $<TARGET_FILE:"))
          << b.page << ": " << first;
      ++printed;
    } else {
      EXPECT_EQ(b.page, "README.md") << first;  // the first program's output: check_readme.cmake
    }
  }
  EXPECT_GE(printed, 3);
}

TEST(Pages, MapHasEveryHeader) {
  const std::string map = read("include/buzz/README.md");
  const fs::path headers = root / "include/buzz";
  int found = 0;
  for (const auto& entry : fs::recursive_directory_iterator(headers)) {
    const std::string kind = entry.path().extension().string();
    if (kind != ".h" && kind != ".cuh") continue;
    ++found;
    const std::string name = fs::relative(entry.path(), headers).generic_string();
    EXPECT_TRUE(has(map, "| `" + name + "` | ")) << name;
  }
  EXPECT_GE(found, 60);
}

/// The table of policies is policies(), in its order, and says what each needs and whether its heads keep the same
/// rows.
TEST(Pages, KnobsHaveEveryPolicyAndOption) {
  const std::string page = read("include/buzz/KNOBS.md");
  std::size_t at = page.find("| policy |");
  ASSERT_NE(at, std::string::npos);
  for (const buzz::PolicyInfo& info : buzz::policies()) {
    const std::size_t row = page.find("\n| `" + std::string(info.name) + "` |", at);
    ASSERT_NE(row, std::string::npos) << info.name << ": no row, or not in the list's order";
    at = row + 1;
    std::vector<std::string> cells;
    std::istringstream line(page.substr(at, page.find('\n', at) - at));
    for (std::string cell; std::getline(line, cell, '|');) cells.push_back(trimmed(cell));
    ASSERT_GE(cells.size(), 6u) << info.name;
    const buzz::Policy policy = info.make();
    std::string needs;
    const auto add = [&](bool needed, const char* what) {
      if (needed) needs += (needs.empty() ? "" : ", ") + std::string(what);
    };
    add(policy.needs().attention, "attention");
    add(policy.needs().keys, "keys");
    add(policy.needs().values, "values");
    add(policy.needs().unrotated_keys, "un-rotated keys");
    add(policy.needs().rotated_keys, "rotated keys");
    add(policy.needs().queries, "queries");
    EXPECT_EQ(cells[4], needs.empty() ? "nothing" : needs) << info.name;
    EXPECT_EQ(cells[5], policy.keeps_one_list() ? "the same rows" : "their own rows") << info.name;
    for (const buzz::OptionInfo& option : buzz::options_of(policy))
      EXPECT_TRUE(has(page, "`" + option.name + "`")) << info.name << ": " << option.name;
  }
}

/// As GitHub makes a heading's anchor.
std::string anchor(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ')
      out += '-';
  }
  return out;
}

TEST(Pages, LinksLeadSomewhere) {
  const std::regex link("\\]\\(([^)# ]*)(#[^) ]*)?\\)");
  for (const std::string& page : pages) {
    const std::string text = read(page);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      const std::string file = (*at)[1], place = (*at)[2];
      if (file.compare(0, 4, "http") == 0) continue;
      const fs::path target = file.empty() ? fs::path(page) : fs::path(page).parent_path() / file;
      EXPECT_TRUE(fs::exists(root / target)) << page << ": " << file;
      if (place.empty() || !fs::exists(root / target)) continue;
      bool found = false;
      for (const std::string& line : lines_of(read(target)))
        found = found || (line.compare(0, 1, "#") == 0 && "#" + anchor(trimmed(line.substr(line.find(' ')))) == place);
      EXPECT_TRUE(found) << page << ": " << place;
    }
  }
}

TEST(Pages, FilesThatTheyNameAreThere) {
  const std::regex name("`([A-Za-z0-9_./]+\\.(md|h|cpp|py|cmake))`");
  int found = 0;
  for (const std::string& page : pages) {
    const std::string text = read(page);
    for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at, ++found) {
      const std::string file = (*at)[1];
      bool there = file == "engine.cpp";  // the reader's own
      for (const char* folder : {"", "include", "include/buzz", "include/buzz/score", "examples", "examples/tiny_llama",
                                 "tests", "tests/fuzz"})
        there = there || fs::exists(root / folder / file);
      EXPECT_TRUE(there || fs::exists(root / fs::path(page).parent_path() / file)) << page << ": " << file;
    }
  }
  EXPECT_GE(found, 50);
}

}  // namespace
