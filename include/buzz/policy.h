#pragma once

#include <limits>
#include <string>
#include <utility>

#include "buzz/regions.h"
#include "buzz/score/reduction.h"
#include "buzz/score/spec.h"
#include "buzz/select/selection.h"

namespace buzz {

/// Whose scores decide together, by a Reduction. head: each KV head keeps its own rows. layer: all heads of a layer
/// keep the same: one list for engines whose heads share their cells. model: all heads of all layers keep the same,
/// sliding layers apart: a fact goes through many heads, and a row that some of them need stays in all. It takes what
/// knows all layers, a ModelCache or a ModelEvictor; to an Evictor or a BuzzCache alone, its own layer is the model.
enum class Sharing { head, layer, model };

/// What an eviction keeps, as a value: how important rows are, whose scores decide together, what stays by index, which
/// of the rest stay and when. It holds no rows; a cache or an Evictor is made from it.
struct Policy {
  std::string name;                 ///< of policies(), or "" for one of your own
  ScoreSpec score;                  ///< how important a row is
  Sharing sharing = Sharing::head;  ///< to whom
  ReductionOptions reduction;       ///< how, where heads share
  Protect protect;                  ///< what stays by index
  Selection select;                 ///< which of the rest stay, and when

  /// Of a score and a selection; options in `protect`.
  Policy(std::string its_name, ScoreSpec its_score, Selection its_select, Protect its_protect = {},
         Sharing its_sharing = Sharing::head, const ReductionOptions& its_reduction = {})
      : name(std::move(its_name)),
        score(std::move(its_score)),
        sharing(its_sharing),
        reduction(its_reduction),
        protect(its_protect),
        select(its_select) {}

  /// What has to be shown to it.
  Needs needs() const { return score.needs(); }
  /// The same for layer i of a model: where its score has weights by layer (Calibrated), that layer's.
  Policy for_layer(int i) const {
    Policy its = *this;
    its.score.set_layer(i);
    return its;
  }
  /// Do all heads keep the same rows, so that an engine whose heads share their cells can run it?
  bool keeps_one_list() const { return sharing != Sharing::head || score.code() == 0; }

  /// All options: sink and window, the score's and the selection's; the sharing's, but for files, which name it
  /// themselves.
  void options(OptionVisitor& v) {
    // Where everything stays they say nothing, and are in files alone.
    if (v.saves() || select.as<KeepAll::Options>() == nullptr) {
      v.whole("sink", protect.sink, 0, (std::numeric_limits<int>::max)(), "first rows of the sequence, which stay");
      v.whole("window", protect.window, 0, (std::numeric_limits<int>::max)(), "newest rows, which stay");
    }
    score.options(v);
    select.options(v);
    if (v.saves()) return;
    static const char* const sharings[] = {"head", "layer", "model"};
    static const char* const reductions[] = {"sum", "mean", "maximum", "top"};
    v.choice("sharing", sharing, sharings, "whose scores decide together");
    v.choice("reduce", reduction.reduce, reductions, "how, where heads share");
    v.real("part", reduction.part, is_part, "above 0 to 1", "of the heads, the highest, where reduce=top");
  }

  /// Most rows that there can be with calls of max_chunk tokens. Errors: an option, or the sum, out of its range.
  int most_rows(int max_chunk) const {
    require_at_least("sink", protect.sink, 0);
    require_at_least("window", protect.window, 0);
    require_enum("sharing", sharing, Sharing::model);
    buzz::check(reduction);
    score.check();
    select.check();
    require_at_least("max_chunk", max_chunk, 1);
    const long long rows = select.bound(protect, max_chunk) + protect.sink + protect.window;
    require_range("sink + window + threshold + max_chunk", rows, 1, (std::numeric_limits<int>::max)() / 2);
    return static_cast<int>(rows);
  }
  /// Is a row moved at most few_moves times, so that keys may be rotated anew at each move? The options are checked.
  bool moves_are_few(int max_chunk) const { return select.most_moves(protect.window, max_chunk) <= few_moves; }
};

}  // namespace buzz
