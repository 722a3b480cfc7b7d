// Made-up facts, each told once in a sentence and asked for by the sentence's beginning: no model needs to have been
// taught to answer questions.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/sentences.h"
#include "tiny_llama/documents.h"
#include "tiny_llama/text_file.h"
#include "tiny_llama/tokenizer.h"

namespace evaluate {

using buzz::fail;
using tiny_llama::Question;

/// A kind of fact: {s} stands for what it is about, and the answer comes after the sentence's beginning.
struct FactKind {
  std::string beginning;  // "The password of the {s} is"
  std::vector<std::string> subjects, answers;
};

/// As many kinds as a set usually has facts, so that a fact has a beginning unlike the others'. Subjects and answers
/// are of a token or two each in the common vocabularies.
inline const std::vector<FactKind>& fact_kinds() {
  using tiny_llama::split;
  static const std::vector<std::string>
      colours = split("red blue green yellow black white purple orange pink golden"),
      numbers = split("three four five six seven eight nine ten twelve twenty"),
      cities = split("Paris London Berlin Madrid Rome Vienna Tokyo Moscow Boston Chicago Dublin Athens"),
      animals = split("horse tiger rabbit turtle eagle monkey elephant wolf bear lion fox camel"),
      trades = split("baker painter lawyer tailor soldier singer nurse clerk miner weaver butcher gardener"),
      names = split("Alice Daniel Emily George Helen Martin Nancy Oliver Peter Robert Susan Thomas"),
      foods = split("honey butter cheese ginger pepper lemon garlic cinnamon chocolate coconut"),
      materials = split("marble copper silver wood glass ivory iron clay bronze wax"),
      words = split("lantern feather candle hammer mirror basket ribbon whistle compass blanket copper amber");
  static const std::vector<FactKind> kinds = {
      {"The colour of the {s} is", split("carriage umbrella balloon curtain"), colours},
      {"The password of the {s} is", split("lighthouse library museum brewery"), words},
      {"The number of the {s} is", split("locker cabin warehouse stable"), numbers},
      {"The dog of {s} is called", split("Walter Edith Howard Clara"),
       split("Lucky Rocky Shadow Buddy Max Daisy Rusty")},
      {"The favourite animal of Doctor {s} is the", split("Morgan Parker Reynolds Sanders"), animals},
      {"Old {s} used to work as a", split("Barnes Carter Dixon Foster"), trades},
      {"The train to {s} leaves from", split("Denver Dallas Houston Seattle"),
       split("Oxford Cambridge Lincoln Durham Bedford Windsor Chester York")},
      {"Professor {s} was born in", split("Watson Bennett Cooper Fisher"), cities},
      {"The ship {s} carried a cargo of", split("Victory Aurora Mercury Phoenix"),
       split("sugar cotton coffee coal salt rice wool timber")},
      {"The captain of the {s} was named", split("Neptune Falcon Swallow Dolphin"), names},
      {"The secret of the {s} is a little", split("soup cake bread pie"), foods},
      {"The inn at {s} is kept by", split("Ashford Preston Stafford Exeter"), names},
      {"The key of the {s} was hidden under the", split("cellar attic pantry chapel"),
       split("carpet pillow stone flower bench barrel stairs bed")},
      {"The clock in the {s} stopped at", split("hall kitchen tower station"), numbers},
      {"The statue in the {s} was made of", split("garden square temple palace"), materials},
      {"Aunt {s} was married to a", split("Martha Agnes Sophie Rose"), trades},
      {"The flag of the {s} showed a", split("regiment province colony company"), animals},
      {"The map of {s} was drawn by", split("Egypt Norway Brazil India"), names},
      {"The letter from {s} was written in", split("Hamburg Lisbon Prague Geneva"),
       split("French Latin Greek German Spanish Italian Russian Arabic")},
      {"Every Sunday Mrs. {s} plays the", split("Palmer Hughes Graham Mitchell"),
       split("piano violin flute drum harp trumpet organ guitar")},
      {"The house of the {s} was painted", split("mayor doctor teacher banker"), colours},
      {"The soldiers of General {s} were paid in", split("Grant Wallace Jackson Harrison"),
       split("gold silver bread wine cloth horses land corn")},
      {"The road to {s} goes through a", split("Memphis Atlanta Tucson Austin"),
       split("forest desert valley swamp tunnel village canyon field")},
      {"The meeting of the {s} was moved to", split("club council choir union"),
       split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")},
  };
  return kinds;
}

struct Fact {
  std::string sentence;
  Question question;
};

/// `count` facts, no two about the same subject, and of one kind each with another answer as far as there are answers.
/// Errors: more than there are subjects.
inline std::vector<Fact> draw_facts(tiny_llama::Random& random, int count) {
  std::vector<std::vector<std::string>> subjects, answers;
  int most = 0;
  for (const FactKind& kind : fact_kinds()) {
    subjects.push_back(random.sample(kind.subjects, kind.subjects.size()));
    answers.push_back(random.sample(kind.answers, kind.answers.size()));
    most += static_cast<int>(kind.subjects.size());
  }
  buzz::require_range("facts", count, 1, most);
  std::vector<Fact> facts;
  std::vector<std::size_t> used(subjects.size());
  for (std::size_t i = random.below(subjects.size()); facts.size() < static_cast<std::size_t>(count); ++i) {
    const std::size_t kind = i % subjects.size(), turn = used[kind]++;
    if (turn >= subjects[kind].size()) continue;
    const std::string beginning = tiny_llama::fill(fact_kinds()[kind].beginning, {{"{s}", subjects[kind][turn]}});
    const std::string answer = " " + answers[kind][turn % answers[kind].size()];
    facts.push_back({beginning + answer + ".", {" " + beginning, answer, 1}});
  }
  return random.sample(facts, facts.size());
}

struct FactsOptions {
  std::string text;         // a file whose sentences stand between the facts; empty: templates
  double from = 0, to = 1;  // the part of the file that they are of
  int facts = 24;           // of a set
  int tokens = 1700;        // of a set, about
};

/// Sentences of a text one after the other from a place of it that is drawn, and facts among them, one in each of as
/// many stretches of the same length.
class Facts {
 public:
  /// Errors: a part that is none or has no sentences, fewer tokens than the facts have.
  Facts(const tiny_llama::Tokenizer& tokenizer, FactsOptions options) : tokenizer_(&tokenizer), o_(std::move(options)) {
    if (!buzz::is_finite(o_.from) || !buzz::is_finite(o_.to) || o_.from < 0 || o_.to > 1 || o_.from >= o_.to)
      fail("part", std::to_string(o_.from) + " to " + std::to_string(o_.to), "0 <= from < to <= 1");
    buzz::require_range("tokens", o_.tokens, 1, 1 << 24);
    if (o_.text.empty()) return;
    const std::string text = tiny_llama::read_text(o_.text);
    const auto at = [&](double share) { return static_cast<std::size_t>(share * static_cast<double>(text.size())); };
    lines_ = sentences(text.substr(at(o_.from), at(o_.to) - at(o_.from)));
  }

  std::string name() const {
    return std::to_string(o_.facts) + " facts among " +
           (o_.text.empty() ? std::string("templates")
                            : "the sentences of " + std::filesystem::path(o_.text).filename().string()) +
           ", asked by completion";
  }

  tiny_llama::Documents operator()(tiny_llama::Random& random) const {
    const std::vector<Fact> facts = draw_facts(random, o_.facts);
    std::size_t next = lines_.empty() ? 0 : random.below(lines_.size()), tokens = 0;
    const auto tokens_of = [&](const std::string& line) { return tokenizer_->encode_more(" " + line).size(); };
    for (const Fact& f : facts) tokens += tokens_of(f.sentence);
    std::vector<std::string> lines;
    while (tokens < static_cast<std::size_t>(o_.tokens)) {
      lines.push_back(lines_.empty() ? tiny_llama::join(tiny_llama::filler(random)) : lines_[next++ % lines_.size()]);
      tokens += tokens_of(lines.back());
    }
    tiny_llama::Documents made;
    std::size_t at = 0;
    for (std::size_t i = 0; i < facts.size(); ++i) {
      const std::size_t end = lines.size() * (i + 1) / facts.size(), place = at + random.below(end - at + 1);
      for (; at < place; ++at) made.text += (made.text.empty() ? "" : " ") + lines[at];
      made.text += (made.text.empty() ? "" : " ") + facts[i].sentence;
      for (; at < end; ++at) made.text += " " + lines[at];
      made.questions.push_back(facts[i].question);
    }
    return made;
  }

 private:
  const tiny_llama::Tokenizer* tokenizer_;
  FactsOptions o_;
  std::vector<std::string> lines_;
};

struct PairsOptions {
  int pairs = 100;     // of a set
  int questions = 24;  // of a set
};

/// Lines of a key and a value, both drawn, asked for by keys, after the second task of "lost in the middle" (Liu et
/// al., arXiv 2307.03172), in words.
class Pairs {
 public:
  /// Errors: more pairs than there are keys, more questions than pairs.
  explicit Pairs(const PairsOptions& options) : o_(options) {
    buzz::require_range("pairs", o_.pairs, 1, static_cast<int>(keys().size()));
    buzz::require_range("questions", o_.questions, 1, o_.pairs);
  }

  std::string name() const { return std::to_string(o_.pairs) + " pairs of a key and a value, asked for by key"; }

  tiny_llama::Documents operator()(tiny_llama::Random& random) const {
    tiny_llama::Documents made;
    const auto& kinds = tiny_llama::words().attributes;
    for (const std::string& key : random.sample(keys(), static_cast<std::size_t>(o_.pairs))) {
      const std::string value = " " + random.of(random.of(kinds).values);
      made.text += key + ":" + value + "\n";
      made.questions.push_back({key + ":", value, 1});
    }
    made.questions = random.sample(std::move(made.questions), static_cast<std::size_t>(o_.questions));
    return made;
  }

 private:
  static std::vector<std::string> keys() {
    std::vector<std::string> keys;
    for (const std::string& a : tiny_llama::words().adjectives)
      for (const std::string& n : tiny_llama::words().nouns) keys.push_back(a + " " + n);
    return keys;
  }

  PairsOptions o_;
};

}  // namespace evaluate
