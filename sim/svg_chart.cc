#include "sim/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace weir::sim {
namespace {

constexpr double kWidth = 560, kHeight = 320;
constexpr double kLeft = 64, kRight = 22, kTop = 62, kBottom = 48;
constexpr int kTicks = 5;
constexpr double kLetter = 6.4;  // of a legend, on average
constexpr const char* kInk = "#1f2328";
constexpr const char* kSoftInk = "#59636e";
constexpr const char* kGrid = "#e6e8eb";

// 1, 2 or 5 times a power of ten, so that about so many steps fill the range.
double step_for(double range, int steps) {
  const double rough = std::max(range, 1e-12) / steps;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string number(double value) {
  constexpr double kThousand = 1'000;
  const double size = std::abs(value);
  if (size >= kThousand * kThousand) return fmt::format("{:.4g} M", value / (kThousand * kThousand));
  if (size >= 10 * kThousand) return fmt::format("{:.4g} k", value / kThousand);
  return fmt::format("{:.4g}", value);
}

// From values to places in the picture.
class Scale {
 public:
  explicit Scale(const SvgChart& chart) : is_log_(chart.is_log_x) {
    low_x_ = is_log_ ? std::numeric_limits<double>::max() : 0;
    high_x_ = chart.most_x;
    high_y_ = chart.most_y;
    for (const SvgSeries& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        low_x_ = std::min(low_x_, x);
        if (chart.most_x == 0) high_x_ = std::max(high_x_, x);
        if (chart.most_y == 0) high_y_ = std::max(high_y_, y);
      }
    }
    for (const SvgMark& mark : chart.marks) {
      if (mark.is_vertical) {
        low_x_ = std::min(low_x_, mark.at);
        if (chart.most_x == 0) high_x_ = std::max(high_x_, mark.at);
      } else if (chart.most_y == 0) {
        high_y_ = std::max(high_y_, mark.at);
      }
    }
    if (is_log_ && chart.least_x > 0) low_x_ = std::max(low_x_, chart.least_x);
    if (is_log_) {
      low_x_ = std::pow(10, std::floor(std::log10(std::clamp(low_x_, 1e-9, 1e15))));
      high_x_ = std::pow(10, std::ceil(std::log10(std::max(high_x_, 2 * low_x_))));
    }
    if (high_x_ <= low_x_) high_x_ = low_x_ + 1;
    if (high_y_ <= 0) high_y_ = 1;
    if (chart.most_y == 0) high_y_ = std::ceil(high_y_ / step_for(high_y_, kTicks)) * step_for(high_y_, kTicks);
  }

  double low_x() const { return low_x_; }
  double high_x() const { return high_x_; }
  double high_y() const { return high_y_; }
  double x(double value) const {
    const double share = is_log_ ? std::log(std::max(value, low_x_) / low_x_) / std::log(high_x_ / low_x_)
                                 : (value - low_x_) / (high_x_ - low_x_);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - std::clamp(value / high_y_, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }

 private:
  bool is_log_;
  double low_x_, high_x_, high_y_;
};

class Drawing {
 public:
  explicit Drawing(const SvgChart& chart) : chart_(chart), scale_(chart) {}

  std::string draw() {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
        "font-family=\"system-ui, sans-serif\" font-size=\"12\">\n",
        kWidth, kHeight, escape_html(chart_.title));
    text(kLeft, 20, kInk, "start", chart_.title, " font-size=\"14\" font-weight=\"600\"");
    draw_legend();
    draw_y_axis();
    chart_.is_log_x ? draw_log_x_axis() : draw_x_axis();
    for (const SvgSeries& series : chart_.series) draw_series(series);
    draw_marks();
    add("</svg>\n");
    return std::move(out_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void text(double x, double y, const char* colour, const char* anchor, const std::string& what,
            const char* more = "") {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, colour, anchor, more,
        escape_html(what));
  }

  void line(double x1, double y1, double x2, double y2, const char* colour, const char* more = "") {
    add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"{}/>\n", x1, y1, x2, y2, colour,
        more);
  }

  void draw_legend() {
    double x = kLeft;
    for (const SvgSeries& series : chart_.series) {
      add("<rect x=\"{:.1f}\" y=\"34\" width=\"14\" height=\"4\" rx=\"2\" fill=\"{}\"/>\n", x, series.colour);
      text(x + 19, 40, kInk, "start", series.name);
      x += 19 + kLetter * static_cast<double>(series.name.size()) + 16;
    }
  }

  void draw_y_axis() {
    const double step = step_for(scale_.high_y(), kTicks);
    for (double value = 0; value <= scale_.high_y() * 1.0001; value += step) {
      const double y = scale_.y(value);
      line(kLeft, y, kWidth - kRight, y, value == 0 ? kSoftInk : kGrid);
      text(kLeft - 7, y + 4, kSoftInk, "end", number(value));
    }
    const double middle = (kTop + kHeight - kBottom) / 2;
    add("<text transform=\"translate(14 {:.1f}) rotate(-90)\" fill=\"{}\" text-anchor=\"middle\">{}</text>\n", middle,
        kSoftInk, escape_html(chart_.y_label));
  }

  void x_tick(double value) {
    const double x = scale_.x(value);
    line(x, kHeight - kBottom, x, kHeight - kBottom + 5, kSoftInk);
    text(x, kHeight - kBottom + 19, kSoftInk, "middle", number(value));
  }

  void draw_x_label() { text((kLeft + kWidth - kRight) / 2, kHeight - 10, kSoftInk, "middle", chart_.x_label); }

  void draw_x_axis() {
    const double step = step_for(scale_.high_x() - scale_.low_x(), kTicks + 2);
    for (double value = scale_.low_x(); value <= scale_.high_x() * 1.0001; value += step) x_tick(value);
    draw_x_label();
  }

  void draw_log_x_axis() {
    for (double decade = scale_.low_x(); decade <= scale_.high_x() * 1.0001; decade *= 10) {
      x_tick(decade);
      line(scale_.x(decade), kTop, scale_.x(decade), kHeight - kBottom, kGrid);
    }
    draw_x_label();
  }

  void draw_series(const SvgSeries& series) {
    if (series.points.empty()) return;
    add("<path fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\" d=\"", series.colour);
    double last_y = 0;
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      const double x = scale_.x(series.points[i].first), y = scale_.y(series.points[i].second);
      if (i != 0 && series.is_step) add("L{:.1f} {:.1f}", x, last_y);
      add("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', x, y);
      last_y = y;
    }
    add("\"/>\n");
  }

  // Names of lines across lie above these, at the right; those of upright lines beside them, below the top.
  void draw_marks() {
    constexpr const char* kDashes = " stroke-dasharray=\"5 4\"";
    constexpr const char* kHalo = " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"";
    double below = kTop + 12;
    for (const SvgMark& mark : chart_.marks) {
      if (mark.is_vertical) {
        const double x = scale_.x(mark.at);
        const bool is_right = x > kWidth * 0.6;
        line(x, kTop, x, kHeight - kBottom, kSoftInk, kDashes);
        text(is_right ? x - 5 : x + 5, below, kSoftInk, is_right ? "end" : "start", mark.name, kHalo);
        below += 16;
      } else {
        const double y = scale_.y(mark.at);
        line(kLeft, y, kWidth - kRight, y, kSoftInk, kDashes);
        text(kWidth - kRight - 2, y - 5, kSoftInk, "end", mark.name, kHalo);
      }
    }
  }

  const SvgChart& chart_;
  Scale scale_;
  std::string out_;
};

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string SvgChart::draw() const { return Drawing(*this).draw(); }

}  // namespace weir::sim
