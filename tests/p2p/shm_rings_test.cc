// Rings of words: order, fullness, asking for room, two threads, doorbells, and nonsense in memory.
#include "p2p/shm/shm_rings.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "p2p/mapping.h"
#include "p2p/shm/shm_packet.h"
#include "p2p/shm/shm_transport.h"
#include "p2p/shm/shm_wire.h"
#include "tests/p2p/cluster.h"
#include "tests/support/status_matchers.h"

namespace ringzero {
namespace {

RingWord WordOf(uint64_t value) {
  RingWord word = {};
  std::memcpy(word.data(), &value, sizeof(value));
  std::memcpy(word.data() + word.size() - sizeof(value), &value, sizeof(value));
  return word;
}

uint64_t ValueOf(const RingWord& word) {
  uint64_t first = 0;
  uint64_t last = 0;
  std::memcpy(&first, word.data(), sizeof(first));
  std::memcpy(&last, word.data() + word.size() - sizeof(last), sizeof(last));
  EXPECT_EQ(first, last);  // a word is never torn
  return first;
}

std::shared_ptr<ShmRings> Rings(int members) {
  auto rings = ShmRings::Create(members);
  EXPECT_TRUE(rings.ok()) << rings.status();
  return *std::move(rings);
}

TEST(ShmRings, AFullRingTakesNoMoreUntilItIsReadAndTold) {
  const auto rings = Rings(2);
  RingWriter writer = rings->Writer(0, 1);
  RingReader reader = rings->Reader(0, 1);
  RingWord word;
  EXPECT_FALSE(reader.Pop(word));
  uint64_t written = 0;
  uint64_t read = 0;
  for (int lap = 0; lap < 3; ++lap) {
    while (writer.Push(WordOf(written))) ++written;
    EXPECT_EQ(written - read, ShmRings::kWords);
    EXPECT_FALSE(writer.AskForRoom());
    ASSERT_TRUE(reader.Pop(word));
    EXPECT_EQ(ValueOf(word), read++);
    EXPECT_FALSE(writer.HasRoom());  // it was not told yet
    EXPECT_TRUE(reader.Publish());   // and it wants to know
    EXPECT_FALSE(reader.Publish());  // once
    EXPECT_TRUE(writer.HasRoom());
    while (reader.Pop(word)) EXPECT_EQ(ValueOf(word), read++);
    EXPECT_EQ(read, written);
    reader.Publish();
  }
}

// Whether worker 1 is woken by what `act` does while it sleeps.
bool Wakes(ShmWire& sleeper, const std::function<void()>& act) {
  constexpr std::chrono::seconds kLong(20);
  const auto start = std::chrono::steady_clock::now();
  sleeper.bell().Sleep(kLong, [&] {
    act();  // it has said that it sleeps, and has not looked away yet
    return false;
  });
  return std::chrono::steady_clock::now() - start < kLong / 2;
}

TEST(ShmWire, WhatTakesOthersAlongWakes) {
  const std::shared_ptr<ShmRings> rings = Rings(2);
  ShmWire writer(WorkerId(0), {WorkerId(0), WorkerId(1)}, rings, {});
  ShmWire sleeper(WorkerId(1), {WorkerId(0), WorkerId(1)}, rings, {});
  RingReader reader = sleeper.ReaderFrom(WorkerId(0));
  for (size_t i = 0; i < ShmRings::kWords; ++i) writer.SendWord(WorkerId(1), {0, i});
  writer.SendNote(WorkerId(1), {});  // a goodbye; finds the ring full
  ASSERT_TRUE(writer.HasWaiting());
  RingWord word;
  while (reader.Pop(word)) {
  }
  sleeper.Publish(reader, WorkerId(0));
  EXPECT_TRUE(Wakes(sleeper, [&] { writer.SendWord(WorkerId(1), {0, 0}); }));
  EXPECT_FALSE(writer.HasWaiting());
}

TEST(ShmRings, RingsOfAllPairsAreApart) {
  const auto rings = Rings(3);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      ASSERT_TRUE(rings->Writer(from, to).Push(WordOf(10 * from + to)));
    }
  }
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      RingWord word;
      ASSERT_TRUE(rings->Reader(from, to).Pop(word));
      EXPECT_EQ(ValueOf(word), static_cast<uint64_t>(10 * from + to));
    }
  }
}

// One thread writes as fast as it can, the other sleeps whenever there is nothing.
TEST(ShmRings, NothingIsLostBetweenTwoThreadsThatSleep) {
  constexpr uint64_t kCount = 20'000;
  constexpr std::chrono::seconds kLong(30);  // a bell that is not heard shows as a test of minutes
  const auto rings = Rings(2);
  std::thread sender([&] {
    RingWriter writer = rings->Writer(0, 1);
    for (uint64_t i = 0; i < kCount; ++i) {
      while (!writer.Push(WordOf(i))) {
        if (writer.AskForRoom()) continue;
        rings->bell(0).Sleep(kLong, [&] { return writer.HasRoom(); });
      }
      rings->bell(1).Ring();
      if (i % 64 == 0) std::this_thread::yield();
    }
  });
  RingReader reader = rings->Reader(0, 1);
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < kCount;) {
    RingWord word;
    while (reader.Pop(word)) ASSERT_EQ(ValueOf(word), i++);
    if (reader.Publish()) rings->bell(0).Ring();
    if (i < kCount) rings->bell(1).Sleep(kLong, [&] { return reader.HasWord(); });
  }
  sender.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
}

TEST(ShmRings, ASleeperWakesByItselfAndByAnyRing) {
  const auto rings = Rings(1);
  Doorbell& bell = rings->bell(0);
  const auto start = std::chrono::steady_clock::now();
  bell.Sleep(std::chrono::milliseconds(20), [] { return false; });
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  bell.Sleep(kDeadline, [] { return true; });  // not at all
  bell.Sleep(kDeadline, [&] {
    bell.RingForSure();  // between its word and its sleep
    return false;
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, kDeadline);
}

TEST(ShmRings, AWriterThatIsKilledLeavesWholeWords) {
  const auto rings = Rings(2);
  const pid_t child = fork();
  if (child == 0) {
    RingWriter writer = rings->Writer(0, 1);
    for (uint64_t i = 0;; ++i) {
      while (!writer.Push(WordOf(i))) {
      }
    }
  }
  RingReader reader = rings->Reader(0, 1);
  RingWord word;
  uint64_t next = 0;
  while (next < 10'000) {
    while (reader.Pop(word)) ASSERT_EQ(ValueOf(word), next++);
    reader.Publish();
  }
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  while (reader.Pop(word)) ASSERT_EQ(ValueOf(word), next++);
  EXPECT_FALSE(reader.HasWord());
}

TEST(ShmRings, NumbersThatCannotBeTrueCountAsFull) {
  const size_t bytes = ShmRings::FileBytes(1);
  RZ_ASSIGN(UniqueFd file, MakeMemoryFile("test-rings", bytes));
  RZ_ASSIGN(auto rings, ShmRings::Create(1, file));
  RZ_ASSIGN(auto memory, Mapping::OfFile(file, bytes, Mapping::Access::kReadWrite));
  RingWriter writer = rings->Writer(0, 0);
  while (writer.Push(WordOf(1))) {
  }
  std::mt19937_64 random(1);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t nonsense = random() | 1ull << 63;
    std::memcpy(memory.data() + i, &nonsense, sizeof(nonsense));
  }
  EXPECT_FALSE(writer.HasRoom());
  RingReader reader = rings->Reader(0, 0);
  EXPECT_FALSE(reader.HasWord());
}

// Worker 1 is a process of ours that says hello as it should, and then writes what it likes.
TEST(ShmRings, NonsenseFromAPeerIsAnErrorThatNamesIt) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RZ_ASSIGN(auto endpoints, MakeShmEndpoints(2));
    const std::shared_ptr<ShmRings> rings = endpoints[0].rings;
    RZ_ASSIGN(auto victim, CreateShmTransport(std::move(endpoints[0]), SmallOptions()));
    std::mt19937_64 random(seed);
    RingWriter writer = rings->Writer(1, 0);
    for (int i = 0; i < 100; ++i) {
      RingWord word;
      for (std::byte& each : word) each = static_cast<std::byte>(random());
      word[0] = static_cast<std::byte>(seed % 8);  // all types, and two that are none
      word[1] = static_cast<std::byte>(random() % 20);
      if (!writer.Push(word)) break;
    }
    rings->bell(0).Ring();
    ASSERT_TRUE(Eventually([&] { return !victim->status().ok(); })) << "seed " << seed;
    EXPECT_THAT(victim->status(), Says("worker 1"));
  }
}

}  // namespace
}  // namespace ringzero
