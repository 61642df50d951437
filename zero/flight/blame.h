// BlameChain: who waits for whom, told worker by worker, and who stands at the end of it.
//
//   BlameChain chain;
//   chain.Add(WorkerId(0), {.says = "waited 600 s for \"Recv …\"", .next = WorkerId(1), …});
//   while (const std::optional<BlameStep> step = chain.next()) {
//     ... ask step->worker why it has not sent it; chain.Add(step->worker, answer) ...
//   }
//   chain.Describe();
//   // "worker 1 has been computing \"F3 t5 l0 v4\" for 601 s, so worker 0 waited 600 s for …"
//
// Plain values; not thread-safe. The texts are what the workers' questions and answers look like.
#ifndef RINGZERO_ZERO_FLIGHT_BLAME_H_
#define RINGZERO_ZERO_FLIGHT_BLAME_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "p2p/transport.h"

namespace ringzero {

// Instead of a question of blame: what does your steady clock say?
inline constexpr char kClockQuestion[] = "clock";
// And "squares 0.25 1.5": the asker's part of the last iterations' squares, ascending.
inline constexpr char kSquaresQuestion[] = "squares ";

// What one worker says of itself: a verb first.
struct BlameAnswer {
  std::string says;              // "has been computing …", "waits for …"
  std::optional<WorkerId> next;  // whom it waits for itself; nothing: the chain ends here
  // From `next`; nothing: whatever that one does.
  std::optional<MessageKey> message;
};

// Why has `waiter` not got `message`?
struct BlameQuestion {
  WorkerId waiter;
  std::optional<MessageKey> message;  // nothing: what do you do?
};

struct BlameStep {
  WorkerId worker;  // to be asked
  BlameQuestion question;
};

// As they travel. The parsers refuse (InvalidArgument) what the writers cannot have written.
std::string WriteQuestion(const BlameQuestion& question);
absl::StatusOr<BlameQuestion> ParseQuestion(const std::string& text);
std::string WriteAnswer(const BlameAnswer& answer);
absl::StatusOr<BlameAnswer> ParseAnswer(const std::string& text);

// "0.3 s", "601 s".
std::string SecondsText(std::chrono::steady_clock::duration time);

class BlameChain {
 public:
  // First the worker that waited too long, then each step's worker.
  void Add(WorkerId worker, BlameAnswer answer);
  // Whom to ask now; nothing at the end of the chain, or when it has become a circle.
  std::optional<BlameStep> next() const;
  // The end first, and then back to who asked.
  std::string Describe() const;

 private:
  struct Link {
    WorkerId worker;
    BlameAnswer answer;
  };
  // The link that the last one leads back to; -1: none.
  int CircleStart() const;

  std::vector<Link> links_;
};

}  // namespace ringzero

#endif  // RINGZERO_ZERO_FLIGHT_BLAME_H_
