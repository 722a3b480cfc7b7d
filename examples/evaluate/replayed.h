// replay: what `calibrated` would keep if its weights foretold without a fault, since the prompt is read again.
#pragma once

#include <algorithm>
#include <string>

#include "calibrate/calibrate.h"
#include "evaluate/sized_policy.h"

namespace evaluate {

/// No policy of the library but a reference, of what can be known of a prompt without its question.
inline bool is_replay(const std::string& spec) { return spec.substr(0, spec.find(':')) == "replay"; }

/// What calibrated's weights estimate, known of a prompt.
struct Replayed {
  buzz::Policy policy;           // of user's scores
  buzz::WeightsOptions options;  // what makes them of attention

  /// spec: replay, and options of calibrated's but its weights. Errors: as sized_policy().
  Replayed(const std::string& spec, const Sizes& sizes)
      : policy(sized_policy("calibrated" + spec.substr(std::string("replay").size()), sizes)),
        options(policy.score.calibrated) {
    if (options.weights != nullptr) fail("weights", printable(spec), "none of replay, which reads again");
    policy.name = "replay";
    policy.score = buzz::user_score();
  }

  /// The scores of a layer's rows, of their attention: both [kv_heads, tokens].
  calibrate::Matrix scores(const calibrate::Matrix& attention) const {
    calibrate::Matrix scores = (attention.array() + calibrate::least_attention).log();
    for (Eigen::Index t = 1; t < scores.cols() && options.trail > 0; ++t)
      for (Eigen::Index h = 0; h < scores.rows(); ++h)
        scores(h, t) = buzz::Calibrated::trailing(scores(h, t - 1), scores(h, t), 1, options);
    if (options.power > 0) scores = (scores.array() * options.power).exp();
    return scores;
  }
};

/// The prompt's second reading, in pieces that the model's context has room for behind it. Errors: it has none.
inline calibrate::Replay read_again(const calibrate::Model& model, const calibrate::Tokens& prompt) {
  calibrate::ReplayOptions o;
  const auto room = model.config.context - static_cast<int>(prompt.size()) -
                    static_cast<int>(model.tokenizer.encode_more(o.request).size());
  o.piece = (std::max)(1, (std::min)(o.piece, room));
  return calibrate::replay(model, prompt, o);
}

}  // namespace evaluate
