// Puts words, lanes and a mailbox together.
#include "p2p/nccl/lane_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "p2p/mailbox_transport.h"
#include "p2p/nccl/lane_driver.h"
#include "p2p/nccl/lane_wire.h"

namespace ringzero {
namespace {

// The answers to what users ask; lanes' words have none.
class Answers {
 public:
  void Set(Answerer answerer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answerer_ = std::move(answerer);
  }
  std::string Answer(WorkerId from, const std::string& question) {
    Answerer answerer;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      answerer = answerer_;
    }
    return answerer ? answerer(from, question) : std::string();
  }

 private:
  std::mutex mutex_;
  Answerer answerer_;
};

struct LaneMembers {
  std::string name;
  std::shared_ptr<Mailbox> mailbox;
  std::shared_ptr<LaneWire> wire;
  std::unique_ptr<Transport> words;
  std::shared_ptr<LaneNews> news;
  std::unique_ptr<LaneDriver> driver;
  PayloadMemory memory;
  ArenaPtr parameters;
  ArenaPtr sums;
};

class LaneTransport final : public MailboxTransport {
 public:
  LaneTransport(LaneMembers parts, const std::vector<int>& slots)
      : MailboxTransport(std::move(parts.mailbox), std::move(parts.parameters),
                         std::move(parts.sums)),
        name_(std::move(parts.name)),
        memory_(std::move(parts.memory)),
        answers_(std::make_shared<Answers>()),
        wire_(std::move(parts.wire)),
        news_(std::move(parts.news)),
        driver_(std::move(parts.driver)),
        words_(std::move(parts.words)) {
    wire_->Attach(mailbox().shared_from_this(), words_.get(), driver_.get());
    words_->AnswerWith([wire = wire_, answers = answers_](WorkerId from, const std::string& text) {
      if (IsLaneWord(text)) return wire->OnWord(from, text);
      if (wire->SaidGoodbye(from)) return std::string(kLaneGone);
      return answers->Answer(from, text);
    });
    news_->ListenWith([wire = wire_](const absl::Status& why) { wire->OnWordsFailed(why); });
    wire_->SayHello(slots);
  }

  ~LaneTransport() override {
    mailbox().Shutdown(kDrainLimit);
    if (mailbox().status().ok()) {  // closed
      wire_->Drain(kDrainLimit);
      words_->Close().IgnoreError();  // refused: it has ended, and nobody minds
    }
    wire_->Detach();
    driver_.reset();
    news_->ListenWith(nullptr);
    words_.reset();
    mailbox().RunCallbacks();
  }

  std::string name() const override { return name_; }
  std::string LinkTo(WorkerId to) const override {
    if (to == self()) return "self";
    return absl::StrCat(name_, " (words: ", words_->LinkTo(to), ")");
  }
  std::vector<Undelivered> undelivered() const override {
    std::vector<Undelivered> waiting = wire_->undelivered();
    for (const Undelivered& each : MailboxTransport::undelivered()) waiting.push_back(each);
    return waiting;
  }
  absl::Status Ask(WorkerId to, const std::string& question, AnswerArrival arrival) override {
    if (IsLaneWord(question)) return absl::InvalidArgumentError("a question like a lane's word");
    return MailboxTransport::Ask(to, question, std::move(arrival));
  }
  void AnswerWith(Answerer answerer) override { answers_->Set(std::move(answerer)); }

 private:
  bool CanCarry(BufferCell* root) const override {
    const auto* cell = dynamic_cast<const ArenaCell*>(root);
    return cell != nullptr && (IsMine(cell->arena()) || wire_->IsReceived(cell));
  }
  absl::Status CopyIn(const Buffer& into, const std::byte* from) const override {
    return memory_.copy(into.data(), from, into.size());
  }

  const std::string name_;
  const PayloadMemory memory_;
  const std::shared_ptr<Answers> answers_;  // shared with words' answerer
  const std::shared_ptr<LaneWire> wire_;    // shared with the mailbox, which handles keep alive
  const std::shared_ptr<LaneNews> news_;
  std::unique_ptr<LaneDriver> driver_;
  std::unique_ptr<Transport> words_;
};

absl::Status CheckRoutes(const LaneParts& parts, int workers) {
  const int lanes = static_cast<int>(parts.lanes.size());
  for (const std::vector<int>* routes : {&parts.routes.to, &parts.routes.from}) {
    if (static_cast<int>(routes->size()) != workers) {
      return InvalidArgument("routes for ", routes->size(), " workers; there are ", workers);
    }
    for (const int lane : *routes) {
      if (lane >= kNoLane && lane < lanes) continue;
      return InvalidArgument("a route takes lane ", lane, "; there are ", lanes);
    }
  }
  if (parts.routes.long_hops == kNoLane || parts.routes.order != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError("a lane for long hops needs their order");
}

absl::StatusOr<size_t> ReceivedBytes(const LaneParts& parts, const TransportOptions& options) {
  if (parts.received_bytes > 0) return parts.received_bytes;
  if (parts.memory.kind != MemoryKind::kHost) {
    return absl::InvalidArgumentError(
        "received_bytes: memory of a device for payload that arrives needs a figure");
  }
  RZ_ASSIGN_OR_RETURN(const std::vector<int> slots, ResolveSlots(options));
  size_t all_slots = 0;
  for (const int each : slots) all_slots += static_cast<size_t>(each);
  return 2 * all_slots * (options.parameter_bytes + options.sum_bytes);
}

}  // namespace

void LaneNews::Tell(const absl::Status& why) {
  Listener listener;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    told_ = why;
    listener = listener_;
  }
  if (listener != nullptr) listener(why);
}

void LaneNews::ListenWith(const Listener& listener) {
  std::optional<absl::Status> told;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    listener_ = listener;
    told = told_;
  }
  if (listener != nullptr && told.has_value()) listener(*told);
}

TransportOptions LaneWordsOptions(const TransportOptions& options, std::shared_ptr<LaneNews> news) {
  TransportOptions words;
  words.slots = {2};
  words.parameter_bytes = 4096;
  words.sum_bytes = 4096;  // for wakes
  words.peer_timeout = options.peer_timeout;
  words.on_failure = [news = std::move(news)](const absl::Status& why) { news->Tell(why); };
  return words;
}

absl::StatusOr<std::unique_ptr<Transport>> CreateLaneTransport(LaneParts parts,
                                                               const TransportOptions& options) {
  const WorkerId self = parts.words->self();
  const int workers = parts.words->workers();
  RZ_ASSIGN_OR_RETURN(const std::vector<int> slots, ResolveSlots(options));
  RZ_RETURN_IF_ERROR(CheckPeerTimeout(options));
  RZ_RETURN_IF_ERROR(CheckRoutes(parts, workers));
  if (options.progress == ProgressMode::kCaller) {
    return InvalidArgument("progress: transport ", parts.name, " has threads of its own");
  }
  if (options.memory != parts.memory.kind) {
    return InvalidArgument("memory: transport ", parts.name, " carries payload in ",
                           parts.memory.kind == MemoryKind::kCuda ? "a GPU's" : "the host's",
                           " memory only");
  }
  RZ_ASSIGN_OR_RETURN(const size_t received_bytes, ReceivedBytes(parts, options));
  LaneMembers members;
  RZ_ASSIGN_OR_RETURN(members.parameters, MakeArena(self, parts.memory, MemoryUse::kParameters,
                                                    options.parameter_bytes));
  RZ_ASSIGN_OR_RETURN(members.sums,
                      MakeArena(self, parts.memory, MemoryUse::kSums, options.sum_bytes));
  RZ_ASSIGN_OR_RETURN(ArenaPtr received,
                      MakeArena(self, parts.memory, MemoryUse::kSums, received_bytes));
  members.wire = std::make_shared<LaneWire>(self, std::move(parts.routes), std::move(received),
                                            parts.word_kinds);
  members.mailbox = std::make_shared<Mailbox>(self, workers, options.on_failure, members.wire);
  for (int kind = 0; kind < kMaxMessageKinds; ++kind) {
    members.mailbox->OnCredit(self, static_cast<uint8_t>(kind), slots[kind]);
  }
  members.driver = std::make_unique<LaneDriver>(
      std::move(parts.lanes),
      LaneDriverOptions{.stall_limit = parts.stall_limit,
                        .on_failure = [wire = members.wire](const absl::Status& why) {
                          wire->OnWordsFailed(why);
                        }});
  members.name = std::move(parts.name);
  members.words = std::move(parts.words);
  members.news = std::move(parts.news);
  members.memory = std::move(parts.memory);
  return std::make_unique<LaneTransport>(std::move(members), slots);
}

}  // namespace ringzero
