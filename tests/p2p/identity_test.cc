// Who a process is, under every launcher, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "p2p/rendezvous/join_job.h"

namespace ringzero {
namespace {

const char kFolder[] = "file:///shared/job";

struct Case {
  std::string name;
  IdentityFlags flags;
  Environment environment;
  std::string described;  // by Describe; "": nobody says; or
  std::string error;      // words of an InvalidArgument
  std::string job;
};

std::vector<Case> Cases() {
  const Environment torchrun = {{"RANK", "5"},
                                {"WORLD_SIZE", "8"},
                                {"LOCAL_RANK", "1"},
                                {"LOCAL_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "29400"},
                                {"TORCHELASTIC_RUN_ID", "bert"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const auto without = [&](const char* name) {
    Environment less = torchrun;
    less.erase(name);
    return less;
  };
  const auto with = [&](const char* name, const char* value) {
    Environment more = torchrun;
    more[name] = value;
    return more;
  };
  const Environment ompi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "prterun-7@1"}};
  const Environment slurm = {{"SLURM_PROCID", "3"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_LOCALID", "1"},
                             {"SLURM_JOB_ID", "77"},
                             {"SLURM_STEP_ID", "2"}};
  Environment slurm_again = slurm;
  slurm_again["SLURM_RESTART_COUNT"] = "1";
  Environment batch = slurm;
  batch.erase("SLURM_STEP_ID");
  batch["SLURM_PROCID"] = "0";
  const IdentityFlags meeting = {.rendezvous = kFolder};
  Environment one_host = ompi;
  one_host["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  Environment one_host_elsewhere = one_host;
  one_host_elsewhere["TMPDIR"] = "/scratch";
  Environment without_job = one_host;
  without_job.erase("PMIX_NAMESPACE");
  const Environment pod = {
      {"JOB_COMPLETION_INDEX", "1"}, {"MASTER_ADDR", "job-0.job"}, {"MASTER_PORT", "29500"}};
  Environment pod_of_2 = pod;
  pod_of_2["WORLD_SIZE"] = "2";
  return {
      {"nobody", {}, {{"PATH", "/bin"}}, ""},
      {"workers alone: we launch", {.workers = 4}, {}, ""},
      {"flags",
       {.worker = 1, .workers = 4, .rendezvous = kFolder},
       {},
       "worker 1 of 4 (command line), rendezvous file:///shared/job"},
      {"flags, one worker", {.worker = 0, .workers = 1}, {}, "worker 0 of 1 (command line)"},
      {"torchrun",
       {},
       torchrun,
       "worker 5 of 8 (torchrun), 1 on this host of 4, rendezvous tcp://node0:29400, restart 2",
       "",
       "bert"},
      {"IPv6",
       {},
       with("MASTER_ADDR", "fe80::1"),
       "worker 5 of 8 (torchrun), 1 on this host of 4, rendezvous tcp://[fe80::1]:29400, restart 2",
       "",
       "bert"},
      {"torchrun, another place", meeting, torchrun,
       "worker 5 of 8 (torchrun), 1 on this host of 4, rendezvous file:///shared/job, restart 2",
       "", "bert"},
      {"torchrun before Open MPI, PMI and Slurm",
       {},
       [&] {
         Environment all = with("PMI_RANK", "2");
         all.insert(ompi.begin(), ompi.end());
         all.insert(slurm.begin(), slurm.end());
         return all;
       }(),
       "worker 5 of 8 (torchrun), 1 on this host of 4, rendezvous tcp://node0:29400, restart 2",
       "",
       "bert"},
      {"Open MPI", meeting, ompi,
       "worker 1 of 4 (Open MPI), 0 on this host of 2, rendezvous file:///shared/job", "",
       "prterun-7@1"},
      {"Open MPI on one host",
       {},
       one_host,
       absl::StrCat("worker 1 of 4 (Open MPI), 0 on this host of 4, rendezvous "
                    "file:///tmp/ringzero-",
                    getuid()),
       "",
       "prterun-7@1"},
      {"Open MPI on one host with a TMPDIR",
       {},
       one_host_elsewhere,
       absl::StrCat("worker 1 of 4 (Open MPI), 0 on this host of 4, rendezvous "
                    "file:///scratch/ringzero-",
                    getuid()),
       "",
       "prterun-7@1"},
      {"Open MPI on one host, no name of the job",
       {},
       without_job,
       "",
       "Open MPI says that this is worker 1 of 4 (4 of them are on this host), but nobody says "
       "where they meet"},
      {"Kubernetes", {}, pod_of_2, "worker 1 of 2 (Kubernetes), rendezvous tcp://job-0.job:29500"},
      {"Kubernetes, told how many",
       {.workers = 3},
       pod,
       "worker 1 of 3 (Kubernetes), rendezvous tcp://job-0.job:29500"},
      {"several workers in a pod",
       {.worker = 5, .workers = 8},
       pod_of_2,
       "worker 5 of 8 (command line), rendezvous tcp://job-0.job:29500"},
      {"PMI",
       meeting,
       {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
       "worker 0 of 2 (PMI), 0 on this host of 2, rendezvous file:///shared/job"},
      {"PMIx, told how many",
       {.workers = 3, .rendezvous = kFolder},
       {{"PMIX_RANK", "2"}},
       "worker 2 of 3 (PMIx), rendezvous file:///shared/job"},
      {"PMIx under Slurm",
       meeting,
       {{"PMIX_RANK", "2"}, {"SLURM_NTASKS", "3"}, {"SLURM_PROCID", "2"}},
       "worker 2 of 3 (PMIx), rendezvous file:///shared/job"},
      {"Slurm", meeting, slurm_again,
       "worker 3 of 4 (Slurm), 1 on this host, rendezvous file:///shared/job, restart 1", "",
       "77.2"},
      {"a batch script is no task", {}, batch, ""},
      {"a shell of Slurm's is no worker",
       {},
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}},
       ""},
      {"place from the environment",
       {.worker = 0, .workers = 2},
       {{"RINGZERO_RENDEZVOUS", "tcp://a:1"}, {"RINGZERO_JOB_ID", "mine"}},
       "worker 0 of 2 (command line), rendezvous tcp://a:1",
       "",
       "mine"},
      {"flags that agree",
       {.worker = 5, .workers = 8},
       torchrun,
       "worker 5 of 8 (command line), 1 on this host of 4, rendezvous tcp://node0:29400, restart 2",
       "",
       "bert"},

      {"no size", {}, without("WORLD_SIZE"), "", "RANK is set, but WORLD_SIZE is not"},
      {"no number", {}, without("RANK"), "", "WORLD_SIZE is set, but RANK is not"},
      {"a pod that is not told how many",
       {},
       pod,
       "",
       "JOB_COMPLETION_INDEX is set, but WORLD_SIZE is not; --workers N would say"},
      {"a pod that launches",
       {.workers = 4},
       {{"JOB_COMPLETION_INDEX", "3"}},
       "",
       "Kubernetes says that this is worker 3 of 4, but nobody says where they meet"},
      {"a place of torchrun's alone",
       {},
       {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}},
       "",
       "MASTER_ADDR is set, but RANK is not: a worker of torchrun has both"},
      {"torchrun's place, and we launch",
       {.workers = 2},
       {{"LOCAL_RANK", "0"}},
       "",
       "LOCAL_RANK is set, but RANK is not"},
      {"a size of Open MPI's alone",
       {},
       {{"OMPI_COMM_WORLD_SIZE", "2"}},
       "",
       "OMPI_COMM_WORLD_SIZE is set, but OMPI_COMM_WORLD_RANK is not"},
      {"a size of PMI's alone",
       {},
       {{"PMI_SIZE", "2"}},
       "",
       "PMI_SIZE is set, but PMI_RANK is not"},
      {"a namespace of PMIx's alone",
       {},
       {{"PMIX_NAMESPACE", "x"}},
       "",
       "PMIX_NAMESPACE is set, but PMIX_RANK is not"},
      {"a step of Slurm's without a task",
       {},
       {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}},
       "",
       "SLURM_STEP_ID is set, but SLURM_PROCID is not"},
      {"a task without its step",
       {},
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}},
       "",
       "SLURM_PROCID is set, but SLURM_STEP_ID is not"},
      {"a task that no batch script is",
       {},
       {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}},
       "",
       "SLURM_PROCID is set, but SLURM_STEP_ID is not"},
      {"not a number", {}, with("RANK", "one"), "", "RANK: wanted a number from 0, found \"one\""},
      {"negative", {}, with("RANK", "-1"), "", "RANK: wanted a number from 0, found \"-1\""},
      {"too large", {}, with("RANK", "8"), "", "RANK is 8, but there are only 8 workers"},
      {"huge", {}, with("WORLD_SIZE", "99999999999"), "", "WORLD_SIZE: wanted a number"},
      {"no restart count",
       {},
       with("TORCHELASTIC_RESTART_COUNT", "x"),
       "",
       "TORCHELASTIC_RESTART_COUNT: wanted a number"},
      {"no port", {}, without("MASTER_PORT"), "", "MASTER_ADDR is set, but MASTER_PORT is not"},
      {"no host", {}, without("MASTER_ADDR"), "", "MASTER_PORT is set, but MASTER_ADDR is not"},
      {"bad port",
       {},
       with("MASTER_PORT", "70000"),
       "",
       "wanted file:///folder or tcp://host:port"},
      {"a place of two kinds",
       {.rendezvous = "file://tcp://host:80"},
       torchrun,
       "",
       "wanted file:///folder or tcp://host:port"},
      {"contradicting worker",
       {.worker = 1, .workers = 8},
       torchrun,
       "",
       "--worker 1 contradicts torchrun, whose RANK is 5"},
      {"contradicting workers",
       {.workers = 4},
       torchrun,
       "",
       "--workers 4 contradicts torchrun, whose WORLD_SIZE is 8"},
      {"Open MPI on two hosts without a place",
       {},
       ompi,
       "",
       "Open MPI says that this is worker 1 of 4 (2 of them are on this host), but nobody says "
       "where they meet: give --rendezvous"},
      {"Open MPI without a size",
       meeting,
       {{"OMPI_COMM_WORLD_RANK", "1"}},
       "",
       "OMPI_COMM_WORLD_RANK is set, but OMPI_COMM_WORLD_SIZE is not"},
      {"PMI without a size", meeting, {{"PMI_RANK", "1"}}, "", "PMI_SIZE is not"},
      {"PMIx without a size", meeting, {{"PMIX_RANK", "1"}}, "", "--workers N would say"},
      {"worker alone", {.worker = 1, .rendezvous = kFolder}, {}, "", "--workers N says it"},
      {"worker too large",
       {.worker = 4, .workers = 4, .rendezvous = kFolder},
       {},
       "",
       "--worker is 4, but there are only 4 workers"},
      {"flags without a place", {.worker = 1, .workers = 4}, {}, "", "nobody says where they meet"},
      {"a place alone", meeting, {}, "", "--rendezvous: which worker is this?"},
      {"a place of the environment alone",
       {},
       {{"RINGZERO_RENDEZVOUS", kFolder}},
       "",
       "RINGZERO_RENDEZVOUS: which worker is this?"},
      {"a bad place",
       {.worker = 1, .workers = 4, .rendezvous = "/tmp/x"},
       {},
       "",
       "wanted file:///folder or tcp://host:port, found \"/tmp/x\""},
      {"a relative place",
       {.worker = 1, .workers = 4, .rendezvous = "file://x/y"},
       {},
       "",
       "wanted file:///folder"},
  };
}

TEST(IdentityTest, EveryLauncher) {
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.name);
    const auto identity = FindIdentity(test.flags, test.environment);
    if (!test.error.empty()) {
      EXPECT_EQ(identity.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_TRUE(absl::StrContains(identity.status().message(), test.error)) << identity.status();
      EXPECT_FALSE(absl::StrContains(identity.status().message(), "\n"));
      continue;
    }
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(identity->has_value() ? Describe(**identity) : "", test.described);
    EXPECT_EQ(identity->has_value() ? (*identity)->job : "", test.job);
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
