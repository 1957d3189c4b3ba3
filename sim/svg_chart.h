// SvgChart: a picture of a few series over one axis, as SVG that stands by itself inside a page.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weir::sim {

struct SvgSeries {
  std::string name;
  std::string colour;
  std::vector<std::pair<double, double>> points;  // by rising x
  bool is_step = false;                           // a value holds until the next point
};

// A line across the picture, with its name at its end.
struct SvgMark {
  std::string name;
  double at = 0;
  bool is_vertical = false;
};

struct SvgChart {
  std::string title, x_label, y_label;
  std::vector<SvgSeries> series;
  std::vector<SvgMark> marks;
  bool is_log_x = false;  // then no point has an x of 0
  double least_x = 0;     // with a logarithm: the least of any point, if this is not less
  double most_x = 0;      // 0: the largest of any point or upright mark
  double most_y = 0;      // 0: the largest of any point or mark

  // Nothing but the <svg> element.
  std::string draw() const;
};

// Text as HTML and SVG take it.
std::string escape_html(const std::string& text);

}  // namespace weir::sim
