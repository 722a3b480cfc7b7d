// Plots as inline SVG: their colours come from the page, so that they are right in light and in dark.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "evaluate/statistics.h"
#include "tiny_llama/report.h"

namespace evaluate {

/// Text as HTML shows it.
inline std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

namespace svg {

constexpr double plot_width = 640, plot_height = 360;

inline std::string number(double x) { return tiny_llama::fixed(x, 1); }

/// A distance between ticks: 1, 2 or 5 times a power of ten, for at most about `ticks` of them.
inline double step(double range, int ticks) {
  const double rough = range / ticks, power = std::pow(10, std::floor(std::log10(rough)));
  const double times = rough / power;
  return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

inline std::string tick(double value, double step) {
  const int decimals = (std::max)(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return tiny_llama::fixed(std::abs(value) < step / 1000 ? 0 : value, decimals);
}

/// A hue a series; where hues come round again the line is dashed.
inline std::string style(std::size_t series) {
  const std::string hue = std::to_string(series * 47 % 360);
  return "stroke:hsl(" + hue + " 70% var(--light))" + (series % 2 == 1 ? ";stroke-dasharray:7 4" : "");
}

inline std::string text(double x, double y, const char* anchor, const std::string& words) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" + escaped(words) +
         "</text>";
}

inline std::string open(const std::string& title, double width, double height) {
  return "<div class=\"plot\"><svg role=\"img\" viewBox=\"0 0 " + number(width) + " " + number(height) +
         "\" style=\"min-width:" + number(width * 0.75) + "px;max-width:" + number(width * 1.3) + "px\"><title>" +
         escaped(title) + "</title>";
}

}  // namespace svg

/// One line a series, with a legend below. Empty series are left out.
inline std::string line_plot(const std::string& title, const std::string& x_name, const std::string& y_name,
                             std::vector<Series> series, double width = svg::plot_width) {
  constexpr double height = svg::plot_height, left = 60, right = 18, top = 14, bottom = 46;
  series.erase(std::remove_if(series.begin(), series.end(), [](const Series& s) { return s.points.empty(); }),
               series.end());
  if (series.empty()) return {};
  double x0 = series[0].points[0].first, x1 = x0, y0 = series[0].points[0].second, y1 = y0;
  for (const Series& s : series)
    for (const auto& [x, y] : s.points) {
      x0 = (std::min)(x0, x);
      x1 = (std::max)(x1, x);
      y0 = (std::min)(y0, y);
      y1 = (std::max)(y1, y);
    }
  x0 = (std::min)(x0, 0.0);  // memory and rows begin at nothing
  if (x1 <= x0) x1 = x0 + 1;
  if (y1 <= y0) y1 = y0 + 1;
  const double dx = svg::step(x1 - x0, 8), dy = svg::step(y1 - y0, 6);
  y0 = std::floor(y0 / dy + 1e-9) * dy;
  y1 = std::ceil(y1 / dy - 1e-9) * dy;
  const auto px = [&](double x) { return left + (x - x0) / (x1 - x0) * (width - left - right); };
  const auto py = [&](double y) { return height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom); };
  std::string out = svg::open(title, width, height);
  for (int i = 0; y0 + i * dy < y1 + dy / 2; ++i) {
    const double y = py(y0 + i * dy);
    out += "<line class=\"grid\" x1=\"" + svg::number(left) + "\" x2=\"" + svg::number(width - right) + "\" y1=\"" +
           svg::number(y) + "\" y2=\"" + svg::number(y) + "\"/>";
    out += svg::text(left - 6, y + 4, "end", svg::tick(y0 + i * dy, dy));
  }
  for (int i = 0; x0 + i * dx <= x1; ++i)
    out += svg::text(px(x0 + i * dx), height - bottom + 18, "middle", svg::tick(x0 + i * dx, dx));
  out += svg::text((left + width - right) / 2, height - 6, "middle", x_name);
  out += "<text transform=\"rotate(-90)\" x=\"" + svg::number(-(top + height - bottom) / 2) +
         "\" y=\"14\" text-anchor=\"middle\">" + escaped(y_name) + "</text>";
  std::string legend;
  for (std::size_t i = 0; i < series.size(); ++i) {
    std::string points;
    for (const auto& [x, y] : series[i].points) points += svg::number(px(x)) + "," + svg::number(py(y)) + " ";
    out += "<polyline class=\"series\" style=\"" + svg::style(i) + "\" points=\"" + points + "\"><title>" +
           escaped(series[i].name) + "</title></polyline>";
    if (series[i].points.size() < 20)
      for (const auto& [x, y] : series[i].points)
        out += "<circle class=\"series\" style=\"" + svg::style(i) + ";stroke-dasharray:none\" cx=\"" +
               svg::number(px(x)) + "\" cy=\"" + svg::number(py(y)) + "\" r=\"2.5\"/>";
    legend += "<span><svg class=\"key\" viewBox=\"0 0 28 8\"><line class=\"series\" style=\"" + svg::style(i) +
              "\" x1=\"0\" x2=\"28\" y1=\"4\" y2=\"4\"/></svg>" + escaped(series[i].name) + "</span> ";
  }
  return out + "</svg></div><p class=\"legend\">" + legend + "</p>";
}

/// Plots of line_plot() below each other, as a file that needs no page around it; series: whose names are a legend for
/// all.
inline std::string standalone(const std::vector<std::string>& plots, const std::vector<Series>& series) {
  constexpr double width = svg::plot_width, height = svg::plot_height, top = 28;
  constexpr double margin = 20;  // on the right, for the last tick's number
  const auto size = [](double x) { return svg::number(x); };
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + size(width + margin) + " " +
      size(top + height * static_cast<double>(plots.size())) +
      "\"><style>svg { background: #fff; overflow: visible } text { font: 12px system-ui, sans-serif; fill: "
      "#1d232b } .grid { stroke: #d5dae0 } .series { fill: none; stroke-width: 2 }</style>";
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double x = 60 + 180 * static_cast<double>(i);
    out += "<line class=\"series\" style=\"" + svg::style(i) + "\" x1=\"" + size(x) + "\" x2=\"" + size(x + 28) +
           "\" y1=\"14\" y2=\"14\"/>" + svg::text(x + 36, 18, "start", series[i].name);
  }
  for (std::size_t i = 0; i < plots.size(); ++i) {
    const std::size_t begin = plots[i].find("<svg ") + 5, end = plots[i].find("</svg>");
    out += "<svg y=\"" + size(top + height * static_cast<double>(i)) + "\" width=\"" + size(width) + "\" height=\"" +
           size(height) + "\" " + plots[i].substr(begin, end - begin) + "</svg>";
  }
  // Not all that draws SVG knows variables.
  const std::string variable = "var(--light)";
  for (std::size_t at = 0; (at = out.find(variable, at)) != std::string::npos;) out.replace(at, variable.size(), "45%");
  return out + "</svg>\n";
}

/// Values from 0 to 1 as shades, [rows][columns], each with its number in it.
inline std::string heat_map(const std::string& title, const std::vector<std::string>& rows,
                            const std::vector<std::string>& columns, const std::vector<std::vector<double>>& values) {
  constexpr double cell_width = 46, cell_height = 24, left = 56, top = 24;
  std::string out = svg::open(title, left + cell_width * static_cast<double>(columns.size()) + 4,
                              top + cell_height * static_cast<double>(rows.size()) + 4);
  for (std::size_t c = 0; c < columns.size(); ++c)
    out += svg::text(left + cell_width * (static_cast<double>(c) + 0.5), top - 7, "middle", columns[c]);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const double y = top + cell_height * static_cast<double>(r);
    out += svg::text(left - 6, y + 16, "end", rows[r]);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const double v = values[r][c], x = left + cell_width * static_cast<double>(c);
      // Light and dark shades are of the middle, so that one colour of text is read on each half of the scale.
      out += "<rect x=\"" + svg::number(x) + "\" y=\"" + svg::number(y) + "\" width=\"" + svg::number(cell_width - 2) +
             "\" height=\"" + svg::number(cell_height - 2) + "\" rx=\"3\" style=\"fill:hsl(" +
             svg::number(10 + 140 * v) + " 60% " + svg::number(84 - 10 * v) + "%)\"/>";
      out += "<text class=\"in\" x=\"" + svg::number(x + cell_width / 2 - 1) + "\" y=\"" + svg::number(y + 16) +
             "\" text-anchor=\"middle\">" + tiny_llama::fixed(v, 2) + "</text>";
    }
  }
  return out + "</svg></div>";
}

}  // namespace evaluate
