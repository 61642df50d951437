// What the writers leave, byte by byte where a format is somebody else's.
#include "integrations/sight/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "integrations/sight/report.h"
#include "tests/p2p/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(CsvWriterTest, WritesDeepSpeedsLayout) {
  const TemporaryFolder folder;
  for (int run = 0; run < 2; ++run) {
    RZ_ASSIGN(const MetricsWriter write,
              MakeCsvWriter({.output_path = folder.path("a/b"), .job_name = "job"}));
    for (int i = 1; i <= 2; ++i) {
      ASSERT_EQ(write({.samples = 32 * i},
                      {{"Train/Samples/lr", 0.5 / i}, {"Train/Samples/train loss", 2.0}}),
                absl::OkStatus());
    }
  }
  // Appended to, with a head for each run.
  EXPECT_EQ(Read(folder.path("a/b/job/Train_Samples_lr.csv")),
            "step,lr\n32,0.5\n64,0.25\nstep,lr\n32,0.5\n64,0.25\n");
  EXPECT_THAT(Read(folder.path("a/b/job/Train_Samples_train_loss.csv")),
              HasSubstr("step,train loss"));
}

TEST(CsvWriterTest, WritesNanWithoutItsSign) {
  const TemporaryFolder folder;
  RZ_ASSIGN(const MetricsWriter write,
            MakeCsvWriter({.output_path = folder.path("a"), .job_name = "job"}));
  for (const double value : {-std::nan(""), double(-INFINITY)}) {
    ASSERT_EQ(write({.samples = 32}, {{"loss", value}}), absl::OkStatus());
  }
  EXPECT_EQ(Read(folder.path("a/job/loss.csv")), "step,loss\n32,nan\n32,-inf\n");
}

TEST(JsonLinesTest, OneObjectALine) {
  const TemporaryFolder folder;
  RZ_ASSIGN(const MetricsWriter write, MakeJsonLinesWriter(folder.path("m.jsonl")));
  ASSERT_EQ(write({.samples = 32, .iteration = 3}, {{"a", 0.1}, {"b", std::nan("")}}),
            absl::OkStatus());
  const Json line = Json::parse(Read(folder.path("m.jsonl")));
  EXPECT_EQ(line["iteration"], 3);
  EXPECT_EQ(line["scalars"]["a"], 0.1);
  EXPECT_TRUE(line["scalars"]["b"].is_null());
}

// Reads TFRecords and the few protobuf fields again, independently of how they were written. The
// `tensorboard` package itself reads them in tests/cli/metrics_test.py.
struct Reader {
  std::string bytes;
  size_t at = 0;
  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    at += sizeof(T);
    return value;
  }
  std::string Bytes(size_t size) {
    at += size;
    return bytes.substr(at - size, size);
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = Take<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
};

TEST(TensorBoardTest, RecordsHoldEvents) {
  const TemporaryFolder folder;
  RZ_ASSIGN(const MetricsWriter write,
            MakeTensorBoardWriter({.output_path = folder.path("runs"), .job_name = "job"}));
  ASSERT_EQ(write({.samples = 300, .wall_seconds = 12.5}, {{"loss", 0.25}}), absl::OkStatus());
  const std::vector<std::string> files = folder.List("runs/job");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_THAT(files[0], HasSubstr("events.out.tfevents."));
  Reader file{Read(folder.path("runs/job/" + files[0]))};
  std::vector<std::string> events;
  while (file.at < file.bytes.size()) {
    const uint64_t size = file.Take<uint64_t>();
    file.Take<uint32_t>();
    events.push_back(file.Bytes(size));
    file.Take<uint32_t>();
  }
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0], HasSubstr("brain.Event:2"));
  Reader event{events[1]};
  EXPECT_EQ(event.Take<uint8_t>(), 1 << 3 | 1);
  EXPECT_EQ(event.Take<double>(), 12.5);
  EXPECT_EQ(event.Take<uint8_t>(), 2 << 3 | 0);
  EXPECT_EQ(event.Varint(), 300u);
  EXPECT_EQ(event.Take<uint8_t>(), 5 << 3 | 2);
  Reader summary{event.Bytes(event.Varint())};
  EXPECT_EQ(summary.Take<uint8_t>(), 1 << 3 | 2);
  Reader value{summary.Bytes(summary.Varint())};
  EXPECT_EQ(value.Take<uint8_t>(), 1 << 3 | 2);
  EXPECT_EQ(value.Bytes(value.Varint()), "loss");
  EXPECT_EQ(value.Take<uint8_t>(), 2 << 3 | 5);
  EXPECT_EQ(value.Take<float>(), 0.25f);
  EXPECT_EQ(value.at, value.bytes.size());
}

// By the slow and plain loop, which is checked by the polynomial's own test value.
TEST(TensorBoardTest, LengthsAreChecked) {
  const TemporaryFolder folder;
  RZ_ASSIGN(const MetricsWriter write,
            MakeTensorBoardWriter({.output_path = folder.path("runs"), .job_name = "a"}));
  const std::string bytes = Read(folder.path("runs/a/" + folder.List("runs/a").at(0)));
  const auto crc32c = [](const std::string& text) {
    uint32_t crc = ~0u;
    for (const char c : text) {
      crc ^= static_cast<uint8_t>(c);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
    return ~crc;
  };
  ASSERT_EQ(crc32c("123456789"), 0xe3069283u);
  uint32_t masked = 0;
  std::memcpy(&masked, bytes.data() + 8, 4);
  EXPECT_EQ(masked, std::rotr(crc32c(bytes.substr(0, 8)), 15) + 0xa282ead8u);
}

TEST(RunFolderTest, RefusesWhatIsMalformed) {
  const TemporaryFolder folder;
  EXPECT_EQ(ReadRunFolder(folder.path("none")).status().code(), absl::StatusCode::kNotFound);
  folder.Write("run.json", "{");
  EXPECT_THAT(ReadRunFolder(folder.path(".")), Says("run.json: not a JSON object"));
  folder.Write("run.json", R"({"ringzero_run": 2})");
  EXPECT_THAT(ReadRunFolder(folder.path(".")), Says("wanted ringzero_run 1, found 2"));
  Json good = {{"ringzero_run", 1}, {"plan", PlanToString({.workers = 2})}, {"parameters", 10}};
  folder.Write("run.json", good.dump());
  folder.Write("metrics.jsonl", "");
  EXPECT_THAT(ReadRunFolder(folder.path(".")),
              Says("run.json: plan: stages must be at least 1, found 0"));
  const StagePlan stage{.end_layer = 1, .forward_cost = 1, .backward_cost = 2};
  good["plan"] = PlanToString({.workers = 2, .stages = {stage}});
  folder.Write("run.json", good.dump());
  folder.Write("metrics.jsonl", "{\"iteration\": 1, \"scalars\": {\"a\": 1}}\nnoise\n");
  EXPECT_THAT(ReadRunFolder(folder.path(".")), Says("metrics.jsonl: line 2: not a JSON object"));
  // A line that was cut when the run died.
  folder.Write("metrics.jsonl", "{\"iteration\": 1, \"scalars\": {\"a\": 1}}\n{\"sam");
  RZ_ASSIGN(const auto run, ReadRunFolder(folder.path(".")));
  EXPECT_THAT(run.scalars.at("a"), ElementsAre(std::pair(1.0, 1.0)));
  EXPECT_TRUE(run.config.empty());
  folder.Write("config.json", "{\"cyclic\": {\"rule\": \"dp\"  // user\n}}");
  EXPECT_EQ(ReadRunFolder(folder.path("."))->config, Json({{"/cyclic/rule", "dp"}}));
}

}  // namespace
}  // namespace ringzero
