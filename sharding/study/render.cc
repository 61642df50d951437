// The grid of workers and ticks, and its pictures: as text, and as a figure.
#include "sharding/study/render.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sharding/rules/schedule.h"

namespace ringzero {

namespace {

constexpr int kColumns = 120;  // of a grid; what is wider goes on below

std::vector<Op> LapOperations(const Plan& plan) {
  std::vector<Op> operations;
  for (int j = 0; j < plan.stage_count(); ++j) {
    operations.push_back({.kind = OpKind::kForward, .stage = StageId(j)});
  }
  for (int j = plan.stage_count() - 1; j >= 0 && plan.stages[j].has_backward; --j) {
    operations.push_back({.kind = OpKind::kBackward, .stage = StageId(j)});
  }
  return operations;
}

}  // namespace

std::vector<GridCell> LockstepGrid(const Plan& plan, int iterations) {
  const std::vector<Op> lap_operations = LapOperations(plan);
  const int lap_ticks = static_cast<int>(lap_operations.size());
  std::vector<GridCell> cells;
  for (int w = 0; w < plan.workers; ++w) {
    int tick = plan.rule_at(Iteration(0)) == Rule::kDp ? 0 : w * lap_ticks / plan.workers;
    for (int t = 0; t < iterations; ++t) {
      for (int l = 0; l < plan.laps; ++l) {
        for (Op op : lap_operations) {
          op.iteration = Iteration(t);
          op.lap = Lap(l);
          op.version = ReadVersion(plan, {WorkerId(w), Iteration(t), Lap(l)}, op.stage);
          // A frozen stage has one version for ever, which is always the newest.
          if (plan.stage(op.stage).sum_bytes == 0) op.version = Version(t);
          cells.push_back({.worker = w, .tick = tick++, .op = op});
        }
      }
    }
  }
  return cells;
}

std::string RenderText(const Plan& plan, int iterations) {
  const std::vector<GridCell> cells = LockstepGrid(plan, iterations);
  int ticks = 0;
  for (const GridCell& cell : cells) ticks = std::max(ticks, cell.tick + 1);
  const int width = static_cast<int>(
      std::max(absl::StrCat(plan.stage_count() - 1).size() + 1, absl::StrCat(ticks - 1).size()));
  const int head = static_cast<int>(absl::StrCat("worker ", plan.workers - 1).size());

  std::string numbers;
  for (int tick = 0; tick < ticks; ++tick) absl::StrAppendFormat(&numbers, " %*d", width, tick);
  std::vector<std::string> rows(plan.workers);
  std::vector<int> next(plan.workers, 0);
  for (const GridCell& cell : cells) {
    std::string& row = rows[cell.worker];
    for (; next[cell.worker] < cell.tick; ++next[cell.worker]) row.append(width + 1, ' ');
    ++next[cell.worker];
    const bool forward = cell.op.kind == OpKind::kForward;
    const bool lap_begins = forward && cell.op.stage.value == 0;
    row += !lap_begins ? ' ' : cell.op.lap.value == 0 ? '|' : ':';
    const char* letter = cell.is_fresh() ? (forward ? "F" : "B") : (forward ? "f" : "b");
    absl::StrAppendFormat(&row, "%*s", width, absl::StrCat(letter, cell.op.stage.value));
  }
  for (std::string& row : rows) row += "|";

  const int cell = width + 1;
  const int per_block = std::max(1, (kColumns - head - 1) / cell);
  std::string text;
  for (int begin = 0; begin < ticks; begin += per_block) {
    const auto add = [&](const std::string& name, const std::string& row) {
      const int count = static_cast<int>(row.size()) / cell;  // without the "|" at its end
      const size_t from = std::min(row.size(), static_cast<size_t>(begin) * cell);
      const int shown = count <= begin + per_block ? kColumns : per_block * cell;
      const std::string line =
          absl::StrFormat("%-*s", head, name) + (count > begin ? row.substr(from, shown) : "");
      absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
    };
    if (begin > 0) text += "\n";
    add("tick", numbers);
    for (int w = 0; w < plan.workers; ++w) add(absl::StrCat("worker ", w), rows[w]);
  }
  return text;
}

namespace {

constexpr double kWidth = 960;  // of the figure, in pixels
constexpr double kLeft = 84;    // room for the workers' names
constexpr double kRight = 16;
constexpr double kTop = 64;     // title and iterations
constexpr double kRowGap = 12;  // between workers: the hops are seen there
constexpr double kLegend = 78;

constexpr const char* kInk = "#1f2933";
constexpr const char* kMuted = "#7b8794";
constexpr const char* kLabel = "font-size=\"12\" fill=\"#1f2933\"";  // in ink
constexpr const char* kSumColor = "#b5124a";

class Figure {
 public:
  Figure(const Plan& plan, int iterations)
      : plan_(plan), cells_(LockstepGrid(plan, iterations)), iterations_(iterations) {
    for (const GridCell& cell : cells_) ticks_ = std::max(ticks_, cell.tick + 1);
    column_ = std::min(44.0, (kWidth - kLeft - kRight) / ticks_);
    row_ = std::clamp(column_, 22.0, 34.0);
    height_ = kTop + plan.workers * (row_ + kRowGap) + 22 + kLegend;
  }

  std::string Draw() {
    Open();
    Bands();
    for (const GridCell& cell : cells_) Cell(cell);
    Axes();
    SumPath();
    Legend();
    absl::StrAppend(&svg_, "</svg>\n");
    return std::move(svg_);
  }

 private:
  double X(double tick) const { return kLeft + tick * column_; }
  double Y(int worker) const { return kTop + worker * (row_ + kRowGap); }

  template <typename... Args>
  void Add(const absl::FormatSpec<Args...>& format, const Args&... args) {
    absl::StrAppendFormat(&svg_, format, args...);
  }

  void Text(double x, double y, const std::string& style, const std::string& text) {
    Add("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style, text);
  }

  void Swatch(double x, double y, int width, const std::string& fill) {
    Add("<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"16\" rx=\"2\" fill=\"%s\"/>\n", x, y,
        width, fill);
  }

  void Open() {
    Add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, "
        "Arial, sans-serif\">\n",
        kWidth, height_, kWidth, height_);
    Add("<title>%s, %d workers, %d stages: who computes what, and when</title>\n",
        ToString(plan_.rule), plan_.workers, plan_.stage_count());
    Add("<defs><pattern id=\"stale\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"2.2\" height=\"6\" fill=\"#fff\" "
        "fill-opacity=\"0.55\"/></pattern>\n"
        "<marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"6.5\" refY=\"4\" markerWidth=\"5\" "
        "markerHeight=\"5\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" "
        "fill=\"%s\"/></marker></defs>\n",
        kSumColor);
    Add("<rect width=\"%.0f\" height=\"%.0f\" rx=\"8\" fill=\"#fff\"/>\n", kWidth, height_);
    const std::string slack =
        plan_.rule == Rule::kCdpV2 ? absl::StrCat(", slack ", plan_.slack) : "";
    Text(16, 26, absl::StrFormat("font-size=\"16\" font-weight=\"600\" fill=\"%s\"", kInk),
         absl::StrCat(ToString(plan_.rule), ": ", plan_.workers, " workers, ", plan_.stage_count(),
                      " stages", slack));
  }

  // One band per worker and iteration.
  void Bands() {
    const int lap_ticks = static_cast<int>(cells_.size()) / (plan_.workers * iterations_);
    for (size_t i = 0; i < cells_.size(); i += lap_ticks) {
      const GridCell& first = cells_[i];
      const int t = first.op.iteration.value;
      Add("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\" fill=\"%s\"/>\n",
          X(first.tick), Y(first.worker) - 3, lap_ticks * column_, row_ + 6,
          t % 2 == 0 ? "#e9edf2" : "#d5dce5");
      if (first.worker == 0) {
        Text(X(first.tick) + 4, kTop - 10, absl::StrFormat("font-size=\"12\" fill=\"%s\"", kMuted),
             absl::StrCat("iteration ", t));
      }
    }
  }

  // Lighter for the first stages, darker for the last.
  std::string Fill(bool forward, int stage) const {
    const double depth = plan_.stage_count() > 1 ? double(stage) / (plan_.stage_count() - 1) : 0.5;
    const double lightness = 80 - 38 * depth;
    return forward ? absl::StrFormat("hsl(212,72%%,%.0f%%)", lightness)
                   : absl::StrFormat("hsl(27,88%%,%.0f%%)", lightness + 3);
  }

  void Cell(const GridCell& cell) {
    const bool forward = cell.op.kind == OpKind::kForward;
    const int stage = cell.op.stage.value;
    const std::string box =
        absl::StrFormat("x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\"",
                        X(cell.tick) + 1, Y(cell.worker), column_ - 2, row_);
    Add("<rect %s fill=\"%s\"/>\n", box, Fill(forward, stage));
    if (!cell.is_fresh()) Add("<rect %s fill=\"url(#stale)\"/>\n", box);
    if (column_ < 19) return;
    const bool is_dark = plan_.stage_count() > 1 && stage * 2 > plan_.stage_count() - 1;
    Text(
        X(cell.tick) + column_ / 2, Y(cell.worker) + row_ / 2 + 4.2,
        absl::StrFormat("font-size=\"%.0f\" font-weight=\"600\" text-anchor=\"middle\" fill=\"%s\"",
                        std::clamp(column_ * 0.4, 9.0, 13.0), is_dark ? "#fff" : kInk),
        absl::StrCat(forward ? "F" : "B", stage));
  }

  void Axes() {
    for (int w = 0; w < plan_.workers; ++w) {
      Text(16, Y(w) + row_ / 2 + 4, kLabel, absl::StrCat("worker ", w));
    }
    const double y = Y(plan_.workers) + 8;
    const std::string muted =
        absl::StrFormat("font-size=\"11\" fill=\"%s\" text-anchor=\"middle\"", kMuted);
    Text(34, y, muted, "tick");
    const int step = column_ >= 19 ? 1 : static_cast<int>(std::ceil(24 / column_));
    for (int tick = 0; tick < ticks_; tick += step) {
      Text(X(tick) + column_ / 2, y, muted, absl::StrCat(tick));
    }
  }

  // The stage whose sum is drawn: the middle one of those that have a sum; -1: none has.
  int DrawnStage() const {
    std::vector<int> candidates;
    for (int j = 0; j < plan_.stage_count(); ++j) {
      if (plan_.stages[j].sum_bytes > 0) candidates.push_back(j);
    }
    return candidates.empty() ? -1 : candidates[candidates.size() / 2];
  }

  void SumPath() {
    const int stage = DrawnStage();
    if (stage < 0 || plan_.workers < 2) return;
    std::vector<const GridCell*> adds(plan_.workers * plan_.laps);
    for (const GridCell& cell : cells_) {
      const bool drawn = cell.op.kind == OpKind::kBackward && cell.op.stage.value == stage &&
                         cell.op.iteration.value == 0;
      if (drawn) adds[cell.op.lap.value * plan_.workers + cell.worker] = &cell;
    }
    for (size_t i = 0; i + 1 < adds.size(); ++i) {
      const bool parked =
          adds[i + 1]->worker == 0 && IsParked(plan_, adds[i]->op.iteration, StageId(stage));
      GridCell by_way = *adds[i];
      if (parked) by_way.worker = plan_.stages[stage].owner.value;
      if (parked) Hop(*adds[i], by_way);
      Hop(by_way, *adds[i + 1]);
    }
    for (int w = 0; w < plan_.workers; ++w) {
      if (plan_.has_masters(WorkerId(w), StageId(stage))) Retire(*adds.back(), w);
    }
    for (const GridCell* add : adds) {
      Add("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\" stroke=\"#fff\"/>\n",
          X(add->tick + 1), Y(add->worker) + row_, kSumColor);
    }
  }

  // From the end of one backward to the end of the next micro-batch's; sideways only between the
  // rows.
  void Hop(const GridCell& from, const GridCell& to) {
    const double x = X(from.tick + 1), y = Y(from.worker) + row_;
    const double to_x = X(to.tick + 1), to_y = Y(to.worker) + row_;
    const std::string path =
        to_y > y ? absl::StrFormat("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1fV%.1f", x, y, x,
                                   y + kRowGap, to_x, y, to_x, y + kRowGap, to_y)
                 : absl::StrFormat("M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f", x, y, x, y - row_,
                                   to_x, to_y + row_, to_x, to_y);
    Add("<path d=\"%s\" fill=\"none\" stroke=\"#fff\" stroke-width=\"4.5\" "
        "stroke-opacity=\"0.7\"/>\n",
        path);
    Add("<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", path, kSumColor);
  }

  // The complete sum goes to a worker that then updates: its owner, or everybody.
  void Retire(const GridCell& last, int owner) {
    const double x = X(last.tick + 1), y = Y(last.worker) + row_;
    const double at = x + std::max(column_, 10.0), at_y = Y(owner) + row_;
    if (owner != last.worker) {
      Add("<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1fV%.1f\" fill=\"none\" stroke=\"%s\" "
          "stroke-width=\"2\" stroke-dasharray=\"5 3\" marker-end=\"url(#tip)\"/>\n",
          x, y, x + 2, y + kRowGap, at, y + kRowGap, at, y - 2, at_y + 10, kSumColor);
    }
    Add("<path d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\" fill=\"%s\" stroke=\"#fff\"/>\n", at, at_y - 4,
        kSumColor);
  }

  void Legend() {
    const double y = height_ - kLegend + 14;
    double x = 16;
    const auto swatches = [&](bool forward, const std::string& text) {
      for (int i = 0; i < 3; ++i) {
        Swatch(x + 13 * i, y, 12, Fill(forward, i * (plan_.stage_count() - 1) / 2));
      }
      Text(x + 46, y + 12.5, kLabel, text);
      x += 46 + 6.6 * static_cast<double>(text.size()) + 26;
    };
    swatches(true, "forward, darker with the stage");
    swatches(false, "backward");
    const std::string middle = Fill(true, plan_.stage_count() / 2);
    Swatch(x, y, 24, middle);
    Text(x + 31, y + 12.5, kLabel, "reads the newest version");
    x += 31 + 168;
    Swatch(x, y, 24, middle);
    Swatch(x, y, 24, "url(#stale)");
    Text(x + 31, y + 12.5, kLabel, "hatched: reads the one before");
    SumLegend(y + 28);
  }

  void SumLegend(double y) {
    const int stage = DrawnStage();
    if (stage < 0 || plan_.workers < 2) return;
    Add("<path d=\"M16 %.1fh36\" stroke=\"%s\" stroke-width=\"2\"/><circle cx=\"34\" cy=\"%.1f\" "
        "r=\"3.6\" fill=\"%s\" stroke=\"#fff\"/>\n",
        y + 8, kSumColor, y + 8, kSumColor);
    Text(
        62, y + 12.5, kLabel,
        absl::StrCat("the gradient sum of stage ", stage, ": every worker adds its own, and ",
                     plan_.spreads_sums() ? "all update from it (diamonds)"
                                          : absl::StrCat("worker ", plan_.stages[stage].owner.value,
                                                         ", the owner, updates it (diamond)")));
  }

  const Plan& plan_;
  const std::vector<GridCell> cells_;
  const int iterations_;
  int ticks_ = 1;
  double column_ = 0;  // width of a tick
  double row_ = 0;     // height of a worker
  double height_ = 0;
  std::string svg_;
};

}  // namespace

std::string RenderSvg(const Plan& plan, int iterations) { return Figure(plan, iterations).Draw(); }

}  // namespace ringzero
