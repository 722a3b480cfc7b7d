// A conversation in the form that a model was trained on: its own chat template, or plain text where it has none.
#pragma once

#include <llama.h>

#include <string>
#include <vector>

#include "buzz/error.h"

namespace llama_cpp {

/// Says what has to be read for the next message. It remembers one exchange, however long the conversation is.
class Chat {
 public:
  explicit Chat(const llama_model* model) : format_(llama_model_chat_template(model, nullptr)) {}

  bool has_template() const { return format_ != nullptr; }
  /// What comes before the answer to a message: the end of the last answer, the message, the beginning of the next.
  std::string before_answer(const std::string& message) {
    if (!has_template()) return message + "\n";
    std::vector<llama_chat_message> all;
    std::size_t read = 0;
    if (!message_.empty()) {
      all.push_back({"user", message_.c_str()});
      read = apply(all, true).size() + answer_.size();
      all.push_back({"assistant", answer_.c_str()});
    }
    all.push_back({"user", message.c_str()});
    const std::string text = apply(all, true);
    message_ = message;
    return text.substr(std::min(read, text.size()));
  }
  void answered(const std::string& answer) { answer_ = answer; }
  /// Has anything been said? What goes on with a saved conversation is told by resume().
  bool begun() const { return !message_.empty(); }
  /// Goes on behind another conversation's last answer, of which it has to know no more than whether there is one: how
  /// an answer ends and the next message begins does not depend on it.
  void resume(bool begun) { message_ = answer_ = begun ? "..." : ""; }

 private:
  std::string apply(const std::vector<llama_chat_message>& messages, bool before_answer) const {
    std::string text(256, ' ');
    for (;;) {
      const int size = llama_chat_apply_template(format_, messages.data(), messages.size(), before_answer, text.data(),
                                                 static_cast<std::int32_t>(text.size()));
      if (size < 0) buzz::fail("model's chat template", "of an unknown kind", "one that llama.cpp knows");
      const bool fits = static_cast<std::size_t>(size) <= text.size();
      text.resize(static_cast<std::size_t>(size));
      if (fits) return text;
    }
  }

  const char* format_;
  std::string message_, answer_;  // of the last exchange
};

}  // namespace llama_cpp
