#pragma once

#include <algorithm>
#include <limits>

#include "buzz/archive.h"
#include "buzz/evictor.h"

namespace buzz {

template <class Self, class Archive>
void Evictor::archive(Self& self, Archive& a) {
  Policy policy = self.policy_;  // a copy: its options are looked at as those to be changed
  const int code = policy.score.code();
  a.same_since(4, "sharing", static_cast<int>(policy.sharing),
               static_cast<int>((std::min)(policy.sharing, Sharing::layer)));
  a.same("score", self.shares() ? -1 - code : code);
  if (self.shares()) a.same_since(4, "reduce", static_cast<int>(policy.reduction.reduce), 0);
  if (self.shares() && policy.reduction.reduce == Reduction::top) a.same("part", policy.reduction.part);
  a.same("select", policy.select.code());
  a.same("kv_heads", self.heads_);
  a.same("max_chunk", self.max_chunk_);
  OptionsOfFile<Archive> fields(a);
  policy.options(fields);
  a.number("rows", self.rows_, 0, self.capacity_);
  a.number("hive", self.hive_, 0, (std::max)(0, self.rows_ - policy.protect.sink - policy.protect.window));
  a.number("next_position", self.next_, self.rows_, (std::numeric_limits<std::int32_t>::max)());
  const std::size_t rows = static_cast<std::size_t>(self.rows_);
  for (int h = 0; h < self.heads_; ++h) {
    a.array(self.positions_.row(h), rows);
    for (int i = 0; i < self.score().states(); ++i) self.score().state(i, h).archive(a, rows);
  }
  Pins::archive(self.pins_, a);
  if (self.needs_.queries) QueryMoments::archive(self.queries_, a, self.next_);
  self.loaded(a);
}

/// Refuses what was read and cannot be.
inline void Evictor::loaded(Reader&) {
  positions_.require_ascending(rows_, next_);
  for (int h = 1; shares() && h < heads_; ++h)
    if (!std::equal(positions_.row(h), positions_.row(h) + rows_, positions_.row(0)))
      fail<FileError>("positions", "others of a head", "the same in all heads, which share them");
  require_range<FileError>("pinned rows", pins_.count_from(policy_.protect.sink), 0, room());
  for (const Pins::Range& r : pins_.ranges()) positions_.require_held<FileError>(rows_, next_, r.first, r.count);
  for (int i = 0; needs_.attention && i < score().states(); ++i)
    for (int h = 0; h < heads_; ++h) score().state(i, h).require_attention_sums("scores", rows_);
  observed_ = next_;
  undo_.clear(next_);
}

}  // namespace buzz
