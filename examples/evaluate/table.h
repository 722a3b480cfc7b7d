// A table of results: as text to read, as CSV and JSON to go on with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/statistics.h"
#include "tiny_llama/report.h"

namespace evaluate {

/// A word, a number, a number with its interval, or nothing.
struct Cell {
  Cell() = default;
  Cell(std::string words) : text(std::move(words)) {}                      // NOLINT: cells are listed in braces
  Cell(const char* words) : text(words) {}                                 // NOLINT
  Cell(double value) : number{value, value, value}, kind(Kind::number) {}  // NOLINT
  Cell(int value) : Cell(static_cast<double>(value)) {}                    // NOLINT
  Cell(std::size_t value) : Cell(static_cast<double>(value)) {}            // NOLINT
  Cell(const Estimate& e) : number(e), kind(Kind::estimate) {}             // NOLINT

  enum class Kind { text, number, estimate };
  std::string text;
  Estimate number;
  Kind kind = Kind::text;
};

struct Column {
  std::string name;
  int decimals = 0;  // of its numbers
};

struct Table {
  std::string title, note;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;

  static std::string text(const Cell& cell, const Column& column) {
    using tiny_llama::fixed;
    if (cell.kind == Cell::Kind::text) return cell.text;
    const std::string value = fixed(cell.number.value, column.decimals);
    if (cell.kind == Cell::Kind::number) return value;
    return value + " [" + fixed(cell.number.low, column.decimals) + ", " + fixed(cell.number.high, column.decimals) +
           "]";
  }

  std::string as_text() const {
    std::vector<std::size_t> widths;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      widths.push_back(columns[c].name.size());
      for (const auto& row : rows) widths[c] = (std::max)(widths[c], text(row[c], columns[c]).size());
    }
    std::string out = title + "\n";
    const auto line = [&](const std::function<std::string(std::size_t)>& field) {
      for (std::size_t c = 0; c < columns.size(); ++c)
        out += (c == 0 ? "" : "  ") +
               (is_text(c) ? tiny_llama::left(field(c), widths[c]) : tiny_llama::right(field(c), widths[c]));
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n";
    };
    line([&](std::size_t c) { return columns[c].name; });
    for (const auto& row : rows) line([&](std::size_t c) { return text(row[c], columns[c]); });
    return note.empty() ? out : out + note + "\n";
  }

  /// An interval is three fields: name, name_low, name_high.
  std::string as_csv() const {
    std::string out;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      out += (c == 0 ? "" : ",") + quoted(columns[c].name);
      if (has_intervals(c)) out += "," + quoted(columns[c].name + "_low") + "," + quoted(columns[c].name + "_high");
    }
    out += "\n";
    for (const auto& row : rows) {
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const Cell& cell = row[c];
        const bool number = cell.kind != Cell::Kind::text;
        out += (c == 0 ? "" : ",") + (number ? exact(cell.number.value) : quoted(cell.text));
        if (!has_intervals(c)) continue;
        out += number ? "," + exact(cell.number.low) + "," + exact(cell.number.high) : ",,";
      }
      out += "\n";
    }
    return out;
  }

  nlohmann::json as_json() const {
    nlohmann::json list = nlohmann::json::array();
    for (const auto& row : rows) {
      nlohmann::json object;
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const Cell& cell = row[c];
        if (cell.kind == Cell::Kind::text) {
          object[columns[c].name] = cell.text.empty() ? nlohmann::json() : nlohmann::json(cell.text);
          continue;
        }
        object[columns[c].name] = cell.number.value;
        if (cell.kind != Cell::Kind::estimate) continue;
        object[columns[c].name + "_low"] = cell.number.low;
        object[columns[c].name + "_high"] = cell.number.high;
      }
      list.push_back(object);
    }
    return {{"title", title}, {"note", note}, {"rows", list}};
  }

  /// The index of a column; columns.size() where there is none of that name.
  std::size_t column(const std::string& name) const {
    std::size_t c = 0;
    while (c < columns.size() && columns[c].name != name) ++c;
    return c;
  }
  bool is_text(std::size_t column) const {
    for (const auto& row : rows)
      if (row[column].kind != Cell::Kind::text) return false;
    return true;
  }

 private:
  bool has_intervals(std::size_t column) const {
    for (const auto& row : rows)
      if (row[column].kind == Cell::Kind::estimate) return true;
    return false;
  }
  static std::string exact(double number) { return nlohmann::json(number).dump(); }
  static std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string out = "\"";
    for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
  }
};

}  // namespace evaluate
