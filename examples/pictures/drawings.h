// What was watched, as inline SVG. Colours take their lightness from the page, so that they are right in light and
// dark.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "evaluate/svg.h"
#include "pictures/watch.h"
#include "tiny_llama/tokenizer.h"

namespace pictures {

using evaluate::escaped;
using evaluate::svg::number;

struct Region {
  const char *name, *about;
  int hue;
};
constexpr Region regions[] = {
    {"sink", "the first rows of the sequence: they stay", 210},
    {"hive", "what earlier evictions left: it is thinned", 40},
    {"unfiltered", "left the window since the last eviction: the best of each chunk stay", 140},
    {"window", "the newest rows: they stay", 280}};

inline std::string fill(int hue) { return "fill:hsl(" + std::to_string(hue) + " 60% var(--light))"; }

/// The size of region i, in the order of `regions`.
inline int size_of(const buzz::Regions& r, int i) {
  const int sizes[] = {r.sink, r.hive, r.unfiltered, r.window};
  return sizes[i];
}
/// Which of `regions` row `row` lies in.
inline int region_of(const buzz::Regions& r, int row) {
  int i = 0;
  for (int end = r.sink; i < 3 && row >= end; end += size_of(r, i)) ++i;
  return i;
}

/// A key of the regions, in words.
inline std::string key() {
  std::string out = "<p class=\"legend\">";
  for (const Region& r : regions)
    out +=
        "<span style=\"white-space:normal;display:block\"><svg class=\"key\" viewBox=\"0 0 28 8\"><rect width=\"28\" "
        "height=\"8\" style=\"" +
        fill(r.hue) + "\"/></svg><b>" + r.name + "</b>: " + r.about + "</span>";
  return out + "</p>";
}

/// The regions to scale, out of `capacity` rows; as wide as the page.
inline std::string bar(const buzz::Regions& r, int capacity) {
  std::string out = "<svg role=\"img\" preserveAspectRatio=\"none\" viewBox=\"0 0 " + std::to_string(capacity) +
                    " 1\" style=\"height:26px\"><rect width=\"" + std::to_string(capacity) +
                    "\" height=\"1\" style=\"fill:var(--line);opacity:.5\"/>";
  int at = 0;
  for (int i = 0; i < 4; at += size_of(r, i++))
    out += "<rect x=\"" + std::to_string(at) + "\" width=\"" + std::to_string(size_of(r, i)) +
           "\" height=\"1\" style=\"" + fill(regions[i].hue) + "\"/>";
  return out + "</svg>";
}

/// "sink 4, hive 130, ..."
inline std::string in_words(const buzz::Regions& r) {
  std::string out;
  for (int i = 0; i < 4; ++i)
    out += std::string(i == 0 ? "" : ", ") + regions[i].name + " " + std::to_string(size_of(r, i));
  return out + ": " + std::to_string(r.rows()) + " rows";
}

/// A token as a label of at most nine characters.
inline std::string label(const tiny_llama::Tokenizer& tokenizer, std::int32_t token) {
  if (token == tokenizer.vocabulary().bos) return "(begin)";
  std::string out;
  for (const char c : tokenizer.decode({token})) {
    if (out.size() > 8) break;
    const bool plain = c > ' ' && c < 127;
    out += plain ? std::string(1, c) : c == '\n' ? "\\n" : c == ' ' ? "" : "?";
  }
  return out.empty() ? "(space)" : out;
}

/// One line a row of a head: its position, its token, its score as a bar. `kept`: the positions that stay; the others
/// are struck out. `chunks`: rows at which a line shows that a chunk begins.
inline std::string rows(const std::string& title, const Moment& m, std::size_t head, const Tokens& tokens,
                        const tiny_llama::Tokenizer& tokenizer, const std::vector<std::int32_t>& kept,
                        const std::vector<int>& chunks) {
  constexpr double width = 356, step = 16, left = 138, right = 42;
  const Head& h = m.heads[head];
  // The sink's scores are far above all others: bars are to the scale of the middle, and longer ones end at the edge.
  double most = 1e-6;
  for (int r = m.regions.sink; r < m.regions.sink + m.regions.middle(); ++r)
    most = (std::max)(most, h.scores[static_cast<std::size_t>(r)]);
  const double height = step * static_cast<double>(h.positions.size()) + 4;
  std::string out = "<div style=\"width:min(390px, 90vw)\"><svg role=\"img\" viewBox=\"0 0 " + number(width) + " " +
                    number(height) + "\"><title>" + escaped(title) + "</title>";
  for (std::size_t r = 0; r < h.positions.size(); ++r) {
    const double y = step * static_cast<double>(r) + 2, score = h.scores[r];
    const double bar = (std::min)(1.0, score / most) * (width - left - right);
    const int region = region_of(m.regions, static_cast<int>(r));
    const bool stays = std::binary_search(kept.begin(), kept.end(), h.positions[r]);
    if (std::find(chunks.begin(), chunks.end(), static_cast<int>(r)) != chunks.end())
      out += "<line class=\"grid\" x1=\"0\" x2=\"" + number(width) + "\" y1=\"" + number(y) + "\" y2=\"" + number(y) +
             "\"/>";
    out += std::string("<g class=\"") + (stays ? "kept" : "gone") + "\"" +
           (stays ? "" : " style=\"opacity:.6;text-decoration:line-through\"") + "><rect x=\"0\" y=\"" + number(y) +
           "\" width=\"6\" height=\"" + number(step) + "\" style=\"" + fill(regions[region].hue) + "\"/>";
    out += evaluate::svg::text(40, y + 12, "end", std::to_string(h.positions[r]));
    out += evaluate::svg::text(50, y + 12, "start", label(tokenizer, tokens[static_cast<std::size_t>(h.positions[r])]));
    out += "<rect x=\"" + number(left) + "\" y=\"" + number(y + 2) + "\" width=\"" + number((std::max)(0.5, bar)) +
           "\" height=\"" + number(step - 4) + "\" style=\"" +
           (stays ? fill(regions[region].hue) : std::string("fill:var(--faint)")) + "\"/>";
    out += evaluate::svg::text(width - 2, y + 12, "end", tiny_llama::fixed(score, 2)) + "</g>";
  }
  return out + "</svg></div>";
}

/// Which of `tokens` positions a layer holds: a line each, as strong as many heads hold it. As wide as the page.
inline std::string strip(const Moment& m, int tokens) {
  std::vector<std::size_t> held(static_cast<std::size_t>(tokens), 0);
  for (const Head& h : m.heads)
    for (const std::int32_t p : h.positions) ++held[static_cast<std::size_t>(p)];
  std::string out = "<svg role=\"img\" preserveAspectRatio=\"none\" viewBox=\"0 0 " + std::to_string(tokens) +
                    " 1\" style=\"height:30px;background:color-mix(in srgb, var(--line) 40%, var(--paper))\">";
  for (std::size_t p = 0, end; p < held.size(); p = end) {
    end = p + 1;
    while (end < held.size() && held[end] == held[p]) ++end;
    if (held[p] == 0) continue;
    out += "<rect x=\"" + std::to_string(p) + "\" width=\"" + std::to_string(end - p) + "\" height=\"1\" style=\"" +
           fill(210) +
           ";opacity:" + tiny_llama::fixed(static_cast<double>(held[p]) / static_cast<double>(m.heads.size()), 2) +
           "\"/>";
  }
  return out + "</svg>";
}

}  // namespace pictures
