// Parameter groups: a list of objects, whose keys are looked at here.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "zero/config/fill.h"
#include "zero/config/values.h"
#include "zero/update/parameter_groups.h"

namespace ringzero {
namespace {

constexpr char kGroups[] = "optimizer.groups";
constexpr absl::string_view kNames = "params|lr_factor|weight_decay|betas";
constexpr int kFarEdits = 3;

bool IsNumber(const JsonValue& value) {
  return value.kind == JsonValue::Kind::kInteger || value.kind == JsonValue::Kind::kNumber;
}

// "wanted a number, found true".
absl::Status Wanted(absl::string_view what, const JsonValue& found) {
  return absl::InvalidArgumentError(absl::StrCat("wanted ", what, ", found ", Describe(found)));
}

absl::Status UnknownName(const std::string& name) {
  std::string nearest;
  int fewest = kFarEdits;
  for (const std::string choice : {"params", "lr_factor", "weight_decay", "betas"}) {
    const int edits = EditDistance(name, choice);
    if (edits < fewest) fewest = edits, nearest = choice;
  }
  if (name == "lr" || name == "learning_rate") nearest = "lr_factor";
  if (name == "name" || name == "names" || name == "pattern") nearest = "params";
  return absl::InvalidArgumentError(nearest.empty()
                                        ? absl::StrCat("unknown key; a group has ", OneOf(kNames))
                                        : absl::StrCat("unknown key; did you mean ", nearest, "?"));
}

absl::Status ReadBetas(const JsonValue& value, ParameterGroup& group) {
  const std::vector<JsonValue>& betas = value.children;
  const bool two = value.kind == JsonValue::Kind::kArray && betas.size() == 2 &&
                   IsNumber(betas[0]) && IsNumber(betas[1]);
  if (!two) return Wanted("a list of two numbers", value);
  group.betas = UpdateRate::Betas{betas[0].number, betas[1].number};
  return absl::OkStatus();
}

absl::Status ReadMember(const JsonValue& value, ParameterGroup& group) {
  if (FindChoice(kNames, value.key) != value.key) {
    return UnknownName(value.key);
  }
  if (value.key == "params") {
    if (value.kind != JsonValue::Kind::kString) return Wanted("a pattern of names", value);
    group.pattern = value.text;
    return absl::OkStatus();
  }
  if (value.key == "betas") return ReadBetas(value, group);
  if (!IsNumber(value)) return Wanted("a number", value);
  if (value.key == "lr_factor") {
    group.rate_factor = value.number;
  } else {
    group.weight_decay = value.number;
  }
  return absl::OkStatus();
}

absl::StatusOr<ParameterGroup> ReadGroup(const JsonValue& value) {
  if (!value.is_object()) return Wanted("an object", value);
  ParameterGroup group;
  for (const JsonValue& member : value.children) {
    if (member.key.empty()) return absl::InvalidArgumentError("an empty key");
    RZ_RETURN_IF_ERROR(Annotate(ReadMember(member, group), member.key));
  }
  if (group.pattern.empty())
    return absl::InvalidArgumentError("params: missing (a pattern of names)");
  return group;
}

}  // namespace

absl::Status FillGroups(const ResolvedKeys& keys, OptimizerOptions& optimizer) {
  if (keys.String("optimizer.decay") == "matrices") {
    optimizer.decays = OptimizerOptions::Decays::kMatrices;
  }
  if (const absl::Status status = CheckOptimizer(optimizer); !status.ok()) {
    return keys.Error("optimizer", status.message());
  }
  if (!keys.Has(kGroups)) return absl::OkStatus();
  const JsonValue& list = keys.Json(kGroups);
  if (list.kind != JsonValue::Kind::kArray) {
    return keys.Error(kGroups, Wanted("a list of objects", list).message());
  }
  for (size_t i = 0; i < list.children.size(); ++i) {
    absl::StatusOr<ParameterGroup> group = ReadGroup(list.children[i]);
    absl::Status status = group.status();
    if (status.ok()) status = CheckGroup(optimizer, *group);
    const std::string where = absl::StrCat(keys.PlaceOf(kGroups).text, ": ", kGroups, "[", i, "]");
    RZ_RETURN_IF_ERROR(Annotate(status, where));
    optimizer.groups.push_back(*std::move(group));
  }
  return absl::OkStatus();
}

}  // namespace ringzero
