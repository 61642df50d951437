// The grid of workers and ticks, and its picture as text.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sharding/render.h"
#include "sharding/schedule.h"

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

std::string CellText(const GridCell& cell) {
  const bool forward = cell.op.kind == OpKind::kForward;
  const char* letter = cell.is_fresh() ? (forward ? "F" : "B") : (forward ? "f" : "b");
  return absl::StrCat(letter, cell.op.stage.value);
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
    const bool lap_begins = cell.op.kind == OpKind::kForward && cell.op.stage.value == 0;
    row += !lap_begins ? ' ' : cell.op.lap.value == 0 ? '|' : ':';
    absl::StrAppendFormat(&row, "%*s", width, CellText(cell));
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

}  // namespace ringzero
