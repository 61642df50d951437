// docs/config.md: one table per section, from the registry alone.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "zero/config/documents.h"
#include "zero/config/keys.h"
#include "zero/config/values.h"

namespace ringzero {
namespace {

constexpr char kHead[] =
    R"(# Configuration

Written by `ringzero config --markdown` from the registry in `zero/config/registry/`; a test compares. `ringzero config --schema`
prints the same as a JSON Schema ([config.schema.json](config.schema.json)), `ringzero config FILE [--set KEY=VALUE ...]` the resolved
configuration of a file, every value with its origin (user, environment, default, derived, auto), which reads back as it is.

A configuration is a file of DeepSpeed 0.19.8's keys and of our own sections `model`, `data`, `evaluation` and `cyclic`.

- It is read as HJSON, as DeepSpeed does: comments (`#`, `//`, `/* */`), commas left out or too many, keys without quotes, a text without
  quotes up to the end of its line. A key that stands twice is an error, at every level, and so is an empty key. Whole numbers may be
  written as floats (`5e8`).
- A number has no leading 0. `010` is a text, in a file and in `--set`, and an error where a number is wanted. Only in *strict* sections
  it is 10, as in DeepSpeed.
- A key that is not in these tables is an error, at every depth, with the nearest known key. Removed keys, most of them by DeepSpeed, say so.
  Common names of HuggingFace, torchtitan, nanoGPT and Megatron are errors, too: the message says [what they are here](#names-of-other-programs).
- A key that has no meaning with the configured `cyclic.rule` is an error: `cyclic.slack` and a true `cyclic.strict`
  with `dp` or `cdp_v1`, a true `cyclic.predict` or `cyclic.stagger` with `dp`.
- A file has at most 256 KiB and 64 levels of brackets. All `--set` together have as much, in at most 1000 options. After 1000 findings
  only a first error is added. An integer is below 2^63 where its row names no maximum. An update has at most 2147483647 samples, a run
  at most 2147483646 iterations.
- In *strict* sections quoted numbers and bools convert, as pydantic does it for DeepSpeed; elsewhere only what is written counts, and
  null is as absent.
- `"auto"` takes the value that the column *here* names; where none is named, a run asks for one (`--set`). DeepSpeed's own `"auto"` inside
  of a section silently is the default.
- *Does nothing here*: accepted, with one line that says why. *Only ...*: `ringzero config` takes every value, `ringzero train` refuses the
  others by name until they are built. `ringzero config` lists all that `train` would refuse, as far as it can tell without the data.
)";

std::string Cell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string Code(absl::string_view text) {
  return text.empty() ? "" : absl::StrCat("`", Cell(text), "`");
}

std::string TypeCell(const KeySpec& key) {
  const std::string choices = AllChoices(key);
  std::string text = choices.empty() ? std::string(Describe(key.type)) : OneOf(choices);
  const std::string range = DescribeRange(key.range);
  if (!range.empty()) absl::StrAppend(&text, ", ", range);
  if (key.range.list_length != 0) absl::StrAppend(&text, ", ", key.range.list_length, " of them");
  if (key.empty == KeySpec::Empty::kRefused) absl::StrAppend(&text, ", at least one");
  if (TakesNull(key) && key.null == KeySpec::Null::kAllowed) absl::StrAppend(&text, ", or null");
  if (!key.types.empty()) absl::StrAppend(&text, "; for ", OneOf(key.types));
  return Cell(text);
}

std::string AutoText(const KeySpec& key) {
  if (key.automatic.empty() || !TakesAuto(key)) return "";
  if (key.automatic[0] == '=') return absl::StrCat("auto: that of `", key.automatic.substr(1), "`");
  return absl::StrCat("auto: ", key.automatic);
}

std::string HereCell(const KeySpec& key) {
  std::string text;
  const auto add = [&](const std::string& part) {
    if (!part.empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", part);
  };
  if (key.state == KeyState::kRemoved) add(absl::StrCat("refused: ", key.why));
  if (key.state == KeyState::kNoEffect) add(absl::StrCat("does nothing here: ", key.why));
  if (!key.built.empty()) {
    const bool outside = key.scope == KeySpec::Scope::kOutside;
    add(absl::StrCat("only ", OneOf(key.built),
                     outside ? " (the rest is outside of this engine)" : " yet"));
  }
  if (key.need == KeyNeed::kRequired) add("required");
  if (key.need == KeyNeed::kTraining) add("required by train and plan");
  if (!key.also.empty()) add(absl::StrCat("also called ", key.also));
  add(AutoText(key));
  return Cell(text);
}

std::string Row(const KeySpec& key) {
  return absl::StrCat("| `", key.path, "` | ", TypeCell(key), " | ", Code(key.default_json), " | ",
                      Cell(key.meaning), " | ", Cell(key.deepspeed), " | ", HereCell(key), " |\n");
}

constexpr char kTable[] =
    "| key | type | default | meaning | DeepSpeed 0.19.8 | here |\n"
    "| --- | --- | --- | --- | --- | --- |\n";

std::string ReadingText(const KeySpec& section) {
  return ReadingOf(section) == Reading::kStrict ? " Strict." : "";
}

std::string ForeignTable() {
  std::string text =
      "\n## Names of other programs\n\nEach is an error here. The message says what this table "
      "says.\n\n| name | whose | here | remark |\n| --- | --- | --- | --- |\n";
  for (const ForeignName& foreign : ForeignNames()) {
    if (foreign.whose.empty()) continue;
    absl::StrAppend(&text, "| ", Code(foreign.name), " | ", foreign.whose, " | ", Code(foreign.key),
                    " | ", Cell(foreign.hint), " |\n");
  }
  return text;
}

}  // namespace

std::string ConfigMarkdown() {
  std::string top = absl::StrCat("\n## At the top\n\n", kTable);
  std::string removed = absl::StrCat("\n## Removed\n\n", kTable);
  std::vector<const KeySpec*> sections;
  for (const KeySpec& key : AllKeys()) {
    if (key.state == KeyState::kTesting) continue;
    if (key.state == KeyState::kRemoved) {
      absl::StrAppend(&removed, Row(key));
    } else if (key.type == KeyType::kSection && key.parent().empty()) {
      sections.push_back(&key);
    } else if (key.parent().empty()) {
      absl::StrAppend(&top, Row(key));
    }
  }
  std::string text = absl::StrCat(kHead, top);
  for (const KeySpec* section : sections) {
    absl::StrAppend(&text, "\n## ", section->path, "\n\n", section->meaning, ".",
                    ReadingText(*section));
    const std::string here = HereCell(*section);
    if (!here.empty()) absl::StrAppend(&text, " Here: ", here, ".");
    if (!section->deepspeed.empty()) absl::StrAppend(&text, " DeepSpeed ", section->deepspeed, ".");
    absl::StrAppend(&text, "\n\n", kTable);
    for (const KeySpec& key : AllKeys()) {
      const bool inside = key.section() == section->path && !key.parent().empty();
      const bool shown = key.state != KeyState::kTesting && key.state != KeyState::kRemoved;
      if (inside && shown) absl::StrAppend(&text, Row(key));
    }
  }
  return text + removed + ForeignTable();
}

}  // namespace ringzero
