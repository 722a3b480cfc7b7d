// One page that needs nothing else: no script, no font, no network.
#pragma once

#include <string>

#include "evaluate/svg.h"
#include "evaluate/table.h"

namespace evaluate {

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void heading(const std::string& text) { body_ += "<h2>" + escaped(text) + "</h2>\n"; }
  void paragraph(const std::string& text) { body_ += "<p>" + lines(text) + "</p>\n"; }
  void code(const std::string& text) { body_ += "<pre>" + escaped(text) + "</pre>\n"; }
  /// What line_plot() or heat_map() made.
  void plot(const std::string& caption, const std::string& markup) {
    if (!markup.empty()) body_ += "<figure><figcaption>" + escaped(caption) + "</figcaption>" + markup + "</figure>\n";
  }
  /// Figures side by side, as many as fit.
  void begin_row() { body_ += "<div class=\"row\">\n"; }
  void end_row() { body_ += "</div>\n"; }

  void table(const Table& t) {
    body_ += "<h3>" + escaped(t.title) + "</h3>\n<div class=\"table\"><table><thead><tr>";
    for (std::size_t c = 0; c < t.columns.size(); ++c)
      body_ += std::string(t.is_text(c) ? "<th class=\"words\">" : "<th>") + escaped(t.columns[c].name) + "</th>";
    body_ += "</tr></thead><tbody>\n";
    for (const auto& row : t.rows) {
      body_ += "<tr>";
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string text = Table::text(row[c], t.columns[c]);
        const std::size_t interval = row[c].kind == Cell::Kind::estimate ? text.find(" [") : std::string::npos;
        body_ += t.is_text(c) ? "<td class=\"words\">" : "<td>";
        body_ += escaped(text.substr(0, interval));
        if (interval != std::string::npos) body_ += " <small>" + escaped(text.substr(interval + 1)) + "</small>";
        body_ += "</td>";
      }
      body_ += "</tr>\n";
    }
    body_ += "</tbody></table></div>\n";
    if (!t.note.empty()) body_ += "<p class=\"note\">" + lines(t.note) + "</p>\n";
  }

  std::string text() const {
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
           escaped(title_) + "</title>\n<style>" + style() + "</style></head>\n<body><main>\n<h1>" + escaped(title_) +
           "</h1>\n" + body_ + "</main></body></html>\n";
  }

 private:
  static std::string lines(const std::string& text) {
    std::string out;
    for (char c : escaped(text)) out += c == '\n' ? std::string("<br>") : std::string(1, c);
    return out;
  }
  static const char* style() {
    return R"(
:root { color-scheme: light dark; --ink: #1d232b; --paper: #ffffff; --faint: #5d6773; --line: #d5dae0; --light: 42%; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ec; --paper: #14181d; --faint: #9aa5b1; --line: #333b45; --light: 62%; }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1320px; margin: auto; padding: 16px; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { margin-top: 2.2em; font-size: 1.3rem; } h3 { font-size: 1rem; }
p { max-width: 46em; } .note, figcaption, small { color: var(--faint); } .note { font-size: 0.85rem; }
pre { overflow-x: auto; padding: 8px 12px; border: 1px solid var(--line); border-radius: 6px; font-size: 0.85rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.82rem; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; } .words { text-align: left; }
td:first-child, th:first-child { position: sticky; left: 0; background: var(--paper); }
tbody tr:hover td { background: color-mix(in srgb, var(--line) 40%, var(--paper)); }
figure { margin: 1.2em 0; } .plot { overflow-x: auto; }
.row { display: flex; flex-wrap: wrap; gap: 4px 20px; } .row figure { margin: 0.4em 0; flex: 0 1 auto; }
svg { display: block; width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg text.in { fill: #14181d; } .grid { stroke: var(--line); } .series { fill: none; stroke-width: 2; }
.legend { font-size: 0.85rem; } .legend span { margin-right: 14px; white-space: nowrap; }
svg.key { display: inline-block; width: 28px; height: 8px; margin-right: 6px; vertical-align: middle; }
)";
  }

  std::string title_, body_;
};

}  // namespace evaluate
