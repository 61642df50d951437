// The certificate's sums, and what it says when a run does not fit.
#include "sharding/memory/fit_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ringzero {
namespace {

using testing::EndsWith;

FitInput TwoWorkers() {
  FitInput input;
  input.states.workers = {{.masters = 100, .versions = 100, .moments = 200, .sums = 50},
                          {.masters = 60, .versions = 60, .moments = 120, .gradients = 30}};
  input.hosts = {0, 0};
  input.extras = {{.statistics = 4, .pools = 7, .rounding = 2},
                  {.statistics = 2, .pools = 3, .rounding = 1}};
  input.pass = {.setup = 20, .activations = 40, .evaluation = 10, .with_waiting_gradients = 55};
  input.process_bytes = 1000;
  input.process_once_bytes = 5000;
  return input;
}

const FitLine& LineOf(const FitCertificate& fit, const std::string& name) {
  for (const FitLine& line : fit.lines) {
    if (line.name == name) return line;
  }
  ADD_FAILURE() << "no line " << name;
  return fit.lines[0];
}

TEST(FitCertificateTest, AddsUpEveryCategoryOfAHost) {
  const FitCertificate fit = Certify(TwoWorkers());
  EXPECT_EQ(fit.Bytes(LineOf(fit, "masters"), 0), 160);
  EXPECT_EQ(fit.Bytes(LineOf(fit, "activations"), 0), 80);
  EXPECT_EQ(fit.Bytes(LineOf(fit, "process"), 0), 2000);
  EXPECT_EQ(fit.Bytes(LineOf(fit, "process, once"), 0), 5000);
  // Worker 1's activations and gradients are 70 apart and 55 together; worker 0 has no gradients.
  EXPECT_EQ(fit.apart, (std::vector<int64_t>{0, 15}));
  EXPECT_EQ(fit.WorkerPeak(0, MemoryPlace::kHost), 450 + 4 + 7 + 2 + 40 + 1000);
  EXPECT_EQ(fit.WorkerPeak(1, MemoryPlace::kHost), 240 + 2 + 3 + 1 + 55 + 1000);
  EXPECT_EQ(fit.HostPeak(0, MemoryPlace::kHost),
            fit.WorkerPeak(0, MemoryPlace::kHost) + fit.WorkerPeak(1, MemoryPlace::kHost) + 5000);
  EXPECT_EQ(fit.HostPeak(0, MemoryPlace::kDevice), 0);
  EXPECT_EQ(fit.HostPeak(0, MemoryPlace::kDisk), 0);
}

TEST(FitCertificateTest, EveryHostHasItsWorkersAndItsOwnOnce) {
  FitInput input = TwoWorkers();
  input.hosts = {0, 1};
  const FitCertificate fit = Certify(input);
  EXPECT_EQ(fit.host_count(), 2);
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(fit.HostPeak(host, MemoryPlace::kHost),
              fit.WorkerPeak(host, MemoryPlace::kHost) + 5000);
  }
  EXPECT_EQ(fit.FullestHost(MemoryPlace::kHost), 0);
}

TEST(FitCertificateTest, WhatIsBuiltOrEvaluatedMayBeTheMost) {
  FitInput input = TwoWorkers();
  input.pass.evaluation = 90;
  EXPECT_EQ(LineOf(Certify(input), "activations").workers, (std::vector<int64_t>{90, 90}));
  EXPECT_EQ(Certify(input).apart, (std::vector<int64_t>{0, 30}));
  input.pass.evaluation = 0;
  input.pass.setup = 80;  // the memory of worker 1's gradients serves for 30 of it
  EXPECT_EQ(LineOf(Certify(input), "activations").workers, (std::vector<int64_t>{80, 50}));
  EXPECT_EQ(Certify(input).apart, (std::vector<int64_t>{0, 0}));
}

TEST(FitCertificateTest, ThreadsShareOneProcess) {
  FitInput input = TwoWorkers();
  input.one_process = true;
  const FitCertificate fit = Certify(input);
  EXPECT_EQ(fit.Bytes(LineOf(fit, "process"), 0), 0);
  EXPECT_EQ(fit.Bytes(LineOf(fit, "process, once"), 0), 6000);
}

TEST(FitCertificateTest, PlacesAreWhereTheRunKeepsThings) {
  FitInput input = TwoWorkers();
  input.places = {.parameters = MemoryPlace::kDevice,
                  .moments = MemoryPlace::kDisk,
                  .passes = MemoryPlace::kDevice};
  const FitCertificate fit = Certify(input);
  EXPECT_EQ(fit.HostPeak(0, MemoryPlace::kHost), 7000);
  EXPECT_EQ(fit.HostPeak(0, MemoryPlace::kDisk), 320 + 3);
  EXPECT_EQ(fit.HostPeak(0, MemoryPlace::kDevice), 160 + 160 + 50 + 10 + 6 + 40 + 55);
}

TEST(FitCertificateTest, SaysWhatDoesNotFitAndWhatWouldHelp) {
  const FitCertificate fit = Certify(TwoWorkers());
  const int64_t peak = fit.HostPeak(0, MemoryPlace::kHost);
  FitBudgets budgets;
  EXPECT_TRUE(CheckFit(fit, budgets).ok()) << "nobody knows a budget";
  budgets[0] = {.bytes = peak, .source = "cyclic.memory_budget.host"};
  EXPECT_TRUE(CheckFit(fit, budgets).ok());
  budgets[0].bytes = peak - 1;
  EXPECT_EQ(CheckFit(fit, budgets).code(), absl::StatusCode::kInvalidArgument);
  const std::string said(CheckFit(fit, budgets).message());
  const std::string helps =
      "the run does not fit: host memory: wanted 0.0 MiB (7804 bytes), found 0.0 MiB (7803 "
      "bytes) (cyclic.memory_budget.host); most of it is process, once, 0.0 MiB (5000 bytes); "
      "what would help: fewer workers on the host";
  const std::string by_disk = ", or optimizer states on NVMe (zero_optimization.offload_optimizer)";
  EXPECT_EQ(said, helps + by_disk);
  // Where the states are less than what is missing, or stream already.
  budgets[0].bytes = peak - 320;
  EXPECT_THAT(std::string(CheckFit(fit, budgets).message()),
              EndsWith(" fewer workers on the host"));
  FitInput streams = TwoWorkers();
  streams.extras[0].tier = 1;
  budgets[0].bytes = peak - 1;
  EXPECT_EQ(CheckFit(Certify(streams), budgets).message(), helps);
}

TEST(FitCertificateTest, Prints) {
  FitBudgets budgets;
  budgets[0] = {.bytes = int64_t{9000} << 20, .source = "MemAvailable"};
  EXPECT_EQ(DescribeFit(Certify(TwoWorkers()), budgets, FitUnit::kWorker), R"(
fit certificate            host       MiB         device       MiB           disk       MiB fullest worker       MiB
masters                     160       0.0              0       0.0              0       0.0            100       0.0
versions                    160       0.0              0       0.0              0       0.0            100       0.0
moments                     320       0.0              0       0.0              0       0.0            200       0.0
sums                         50       0.0              0       0.0              0       0.0             50       0.0
taken                         0       0.0              0       0.0              0       0.0              0       0.0
gradients                    30       0.0              0       0.0              0       0.0             30       0.0
statistics                    6       0.0              0       0.0              0       0.0              4       0.0
activations                  80       0.0              0       0.0              0       0.0             40       0.0
pools                        10       0.0              0       0.0              0       0.0              7       0.0
rounding                      3       0.0              0       0.0              0       0.0              2       0.0
process                    2000       0.0              0       0.0              0       0.0           1000       0.0
process, once              5000       0.0              0       0.0              0       0.0              0       0.0
never together              -15      -0.0              0       0.0              0       0.0              0       0.0
peak                       7804       0.0              0       0.0              0       0.0           1503       0.0
budget               9437184000    9000.0        unknown         -        unknown         -
budget of the host: MemAvailable
)");
}

}  // namespace
}  // namespace ringzero
