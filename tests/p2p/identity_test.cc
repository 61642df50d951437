// Who a process is, under every launcher, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "p2p/job/join_job.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

const char kFolder[] = "file:///shared/job";

const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29400"},
                               {"TORCHELASTIC_RUN_ID", "bert"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_RANK", "1"},
                              {"PMIX_NAMESPACE", "prterun-7@1"}};
const Environment kSlurm = {{"SLURM_PROCID", "3"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "2"}};
const Environment kPod = {
    {"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "job-0.job"}, {"MASTER_PORT", "29500"}};
const IdentityFlags kMeeting = {.rendezvous = kFolder};

Environment Without(Environment environment, const char* name) {
  environment.erase(name);
  return environment;
}
Environment With(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(IdentityTest, EveryLauncher) {
  const std::string torchrun = "worker 5 of 8 (torchrun), 1 on this host of 4, rendezvous ";
  const std::string mine = absl::StrCat("/ringzero-", getuid());
  const std::string open_mpi = "worker 1 of 4 (Open MPI), 0 on this host of ";
  const Environment one_host = With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const Environment pod_of_2 = With(kPod, {{"WORLD_SIZE", "2"}});
  Environment all = With(kTorchrun, {{"PMI_RANK", "2"}});
  all.insert(kOpenMpi.begin(), kOpenMpi.end());
  all.insert(kSlurm.begin(), kSlurm.end());
  struct Case {
    IdentityFlags flags;
    Environment environment;
    std::string described;  // by Describe
    std::string job;
  };
  const std::vector<Case> cases = {
      {{.worker = 1, .workers = 4, .rendezvous = kFolder},
       {},
       "worker 1 of 4 (command line), rendezvous file:///shared/job"},
      {{.worker = 0, .workers = 1}, {}, "worker 0 of 1 (command line)"},
      {{}, kTorchrun, torchrun + "tcp://node0:29400, restart 2", "bert"},
      {{},
       With(kTorchrun, {{"MASTER_ADDR", "fe80::1"}}),
       torchrun + "tcp://[fe80::1]:29400, restart 2",
       "bert"},
      {kMeeting, kTorchrun, torchrun + "file:///shared/job, restart 2", "bert"},
      // torchrun before Open MPI, PMI and Slurm.
      {{}, all, torchrun + "tcp://node0:29400, restart 2", "bert"},
      {kMeeting, kOpenMpi, open_mpi + "2, rendezvous file:///shared/job", "prterun-7@1"},
      {{}, one_host, open_mpi + "4, rendezvous file:///tmp" + mine, "prterun-7@1"},
      {{},
       With(one_host, {{"TMPDIR", "/scratch"}}),
       open_mpi + "4, rendezvous file:///scratch" + mine,
       "prterun-7@1"},
      {{}, pod_of_2, "worker 1 of 2 (Kubernetes), rendezvous tcp://job-0.job:29500"},
      {{.workers = 3}, kPod, "worker 1 of 3 (Kubernetes), rendezvous tcp://job-0.job:29500"},
      // Several workers in a pod.
      {{.worker = 5, .workers = 8},
       pod_of_2,
       "worker 5 of 8 (command line), rendezvous tcp://job-0.job:29500"},
      {kMeeting,
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
       "worker 0 of 2 (PMI), 0 on this host of 2, rendezvous file:///shared/job"},
      {{.workers = 3, .rendezvous = kFolder},
       {{"PMIX_RANK", "2"}},
       "worker 2 of 3 (PMIx), rendezvous file:///shared/job"},
      {kMeeting,
       {{"PMIX_RANK", "2"}, {"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "2"}},
       "worker 2 of 3 (PMIx), rendezvous file:///shared/job"},
      {kMeeting, With(kSlurm, {{"SLURM_RESTART_COUNT", "1"}}),
       "worker 3 of 4 (Slurm), 1 on this host, rendezvous file:///shared/job, restart 1", "77.2"},
      {{.worker = 0, .workers = 2},
       {{"RINGZERO_RENDEZVOUS", "tcp://a:1"}, {"RINGZERO_JOB_ID", "mine"}},
       "worker 0 of 2 (command line), rendezvous tcp://a:1",
       "mine"},
      // Flags that agree with the launcher.
      {{.worker = 5, .workers = 8},
       kTorchrun,
       "worker 5 of 8 (command line), 1 on this host of 4, rendezvous tcp://node0:29400, restart 2",
       "bert"}};
  for (const auto& [flags, environment, described, job] : cases) {
    SCOPED_TRACE(described);
    RZ_ASSIGN(const auto identity, FindIdentity(flags, environment));
    ASSERT_TRUE(identity.has_value());
    EXPECT_EQ(Describe(*identity), described);
    EXPECT_EQ(identity->job, job);
  }
}

TEST(IdentityTest, NoWorkerOfAJob) {
  using Case = std::pair<IdentityFlags, Environment>;
  for (const auto& [flags, environment] :
       {Case({}, {{"PATH", "/bin"}}), Case({.workers = 4}, {}),
        // Slurm: a batch script is no task, nor is a shell a worker.
        Case({}, With(Without(kSlurm, "SLURM_STEP_ID"), {{"SLURM_PROCID", "0"}})),
        Case({}, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}})}) {
    RZ_ASSIGN(const auto identity, FindIdentity(flags, environment));
    EXPECT_FALSE(identity.has_value()) << Describe(*identity);
  }
}

TEST(IdentityTest, WhatIsRefused) {
  const std::string nowhere = "but nobody says where they meet";
  const std::string place = "wanted file:///folder or tcp://host:port";
  struct Case {
    IdentityFlags flags;
    Environment environment;
    std::string error;
  };
  const std::vector<Case> cases = {
      {{}, Without(kTorchrun, "WORLD_SIZE"), "RANK is set, but WORLD_SIZE is not"},
      {{}, Without(kTorchrun, "RANK"), "WORLD_SIZE is set, but RANK is not"},
      {{}, kPod, "JOB_COMPLETION_INDEX is set, but WORLD_SIZE is not; --workers N would say"},
      {{.workers = 4},
       {{"JOB_COMPLETION_INDEX", "3"}},
       "Kubernetes says that this is worker 3 of 4, " + nowhere},
      {{},
       {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
       "MASTER_ADDR is set, but RANK is not: a worker of torchrun has both"},
      {{.workers = 2}, {{"LOCAL_RANK", "0"}}, "LOCAL_RANK is set, but RANK is not"},
      {{},
       {{"OMPI_COMM_WORLD_SIZE", "2"}},
       "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_RANK is not"},
      {{}, {{"PMI_SIZE", "2"}}, "PMI_SIZE is set, but PMI_RANK is not"},
      {{}, {{"PMIX_NAMESPACE", "x"}}, "PMIX_NAMESPACE is set, but PMIX_RANK is not"},
      {{},
       {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}},
       "SLURM_STEP_ID is set, but SLURM_PROCID is not"},
      {{},
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}},
       "SLURM_PROCID is set, but SLURM_STEP_ID is not"},
      // A task that no batch script is.
      {{},
       {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}},
       "SLURM_PROCID is set, but SLURM_STEP_ID is not"},
      {{}, With(kTorchrun, {{"RANK", "one"}}), "RANK: wanted a number from 0, found \"one\""},
      {{}, With(kTorchrun, {{"RANK", "-1"}}), "RANK: wanted a number from 0, found \"-1\""},
      {{}, With(kTorchrun, {{"RANK", "8"}}), "RANK is 8, but there are only 8 workers"},
      {{}, With(kTorchrun, {{"WORLD_SIZE", "99999999999"}}), "WORLD_SIZE: wanted a number"},
      {{},
       With(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "x"}}),
       "TORCHELASTIC_RESTART_COUNT: wanted a number"},
      {{}, Without(kTorchrun, "MASTER_PORT"), "MASTER_ADDR is set, but MASTER_PORT is not"},
      {{}, Without(kTorchrun, "MASTER_ADDR"), "MASTER_PORT is set, but MASTER_ADDR is not"},
      {{}, With(kTorchrun, {{"MASTER_PORT", "70000"}}), place},
      {{.rendezvous = "file://tcp://host:80"}, kTorchrun, place},
      {{.worker = 1, .workers = 8}, kTorchrun, "--worker 1 contradicts torchrun, whose RANK is 5"},
      {{.workers = 4}, kTorchrun, "--workers 4 contradicts torchrun, whose WORLD_SIZE is 8"},
      {{},
       kOpenMpi,
       "Open MPI says that this is worker 1 of 4 (2 of them are on this host), " + nowhere +
           ": give --rendezvous"},
      // On one host, but without a name of the job.
      {{},
       With(Without(kOpenMpi, "PMIX_NAMESPACE"), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
       "Open MPI says that this is worker 1 of 4 (4 of them are on this host), " + nowhere},
      {kMeeting,
       {{"OMPI_COMM_WORLD_RANK", "1"}},
       "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"},
      {kMeeting, {{"PMI_RANK", "1"}}, "PMI_SIZE is not"},
      {kMeeting, {{"PMIX_RANK", "1"}}, "--workers N would say"},
      {{.worker = 1, .rendezvous = kFolder}, {}, "--workers N says it"},
      {{.worker = 4, .workers = 4, .rendezvous = kFolder},
       {},
       "--worker is 4, but there are only 4 workers"},
      {{.worker = 1, .workers = 4}, {}, nowhere},
      {kMeeting, {}, "--rendezvous: which worker is this?"},
      {{}, {{"RINGZERO_RENDEZVOUS", kFolder}}, "RINGZERO_RENDEZVOUS: which worker is this?"},
      {{.worker = 1, .workers = 4, .rendezvous = "/tmp/x"}, {}, place + ", found \"/tmp/x\""},
      {{.worker = 1, .workers = 4, .rendezvous = "file://x/y"}, {}, place}};
  for (const auto& [flags, environment, error] : cases) {
    const absl::Status status = FindIdentity(flags, environment).status();
    EXPECT_THAT(status, Fails(absl::StatusCode::kInvalidArgument, error));
    EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
  }
}

TEST(IdentityTest, TheAgentsStoreIsTorchrunsAlone) {
  Environment environment = {{"RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "a"},
                             {"MASTER_PORT", "1"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ((**FindIdentity({}, environment)).store, Identity::Store::kAgent);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ((**FindIdentity({}, environment)).store, Identity::Store::kWorker0);
}

}  // namespace
}  // namespace ringzero
