// What needle found, as a map a policy.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "evaluate/html.h"
#include "evaluate/needle.h"

namespace evaluate {

/// Of the table of right answers: a policy's rows are its lengths, the columns behind them the depths.
inline void show_heat_maps(Page& page, const Table& t) {
  const std::size_t length = t.column("length");
  std::vector<std::string> depths;
  for (std::size_t c = length + 1; c < t.columns.size(); ++c) depths.push_back(t.columns[c].name);
  page.begin_row();
  for (std::size_t r = 0; r < t.rows.size();) {
    const std::string name = t.rows[r][0].text, budget = t.rows[r][1].text;
    std::vector<std::string> lengths;
    std::vector<std::vector<double>> values;
    for (; r < t.rows.size() && t.rows[r][0].text == name && t.rows[r][1].text == budget; ++r) {
      lengths.push_back(Table::text(t.rows[r][length], t.columns[length]));
      values.emplace_back();
      for (std::size_t c = length + 1; c < t.columns.size(); ++c) values.back().push_back(t.rows[r][c].number.value);
    }
    page.plot(name, heat_map("Right answers of " + name + " by length and depth", lengths, depths, values));
  }
  page.end_row();
}

}  // namespace evaluate
