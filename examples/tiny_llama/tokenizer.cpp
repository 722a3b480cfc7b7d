#include "tiny_llama/tokenizer.h"

#include <algorithm>
#include <utility>

#include "buzz/error.h"
#include "tiny_llama/utf8.h"

namespace tiny_llama {
namespace {

std::unique_ptr<const Vocabulary> checked(Vocabulary v) {
  check(v);
  return std::make_unique<const Vocabulary>(std::move(v));
}
std::variant<SentencePiece, Bpe> make_pieces(const Vocabulary& v) {
  return v.kind == TokenizerKind::llama ? std::variant<SentencePiece, Bpe>(SentencePiece(v))
                                        : std::variant<SentencePiece, Bpe>(Bpe(v));
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : vocabulary_(checked(std::move(vocabulary))), pieces_(make_pieces(*vocabulary_)) {
  for (std::int32_t id = 0; id < size(); ++id)
    if (is(id, Vocabulary::user_defined) || is(id, Vocabulary::control) || is(id, Vocabulary::unknown))
      if (!token(id).empty()) whole_.push_back(id);
  std::stable_sort(whole_.begin(), whole_.end(),
                   [&](std::int32_t a, std::int32_t b) { return token(a).size() > token(b).size(); });
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, ControlTokens control) const {
  std::vector<std::int32_t> ids;
  if (vocabulary_->add_bos) ids.push_back(vocabulary_->bos);
  append(text, control, true, ids);
  if (vocabulary_->add_eos) ids.push_back(vocabulary_->eos);
  return ids;
}

std::vector<std::int32_t> Tokenizer::encode_more(std::string_view text, ControlTokens control) const {
  std::vector<std::int32_t> ids;
  append(text, control, false, ids);
  return ids;
}

std::string Tokenizer::piece(std::int32_t id) const {
  if (id < 0 || id >= size()) fail("token id", id, "0 to " + std::to_string(size() - 1));
  if (is(id, Vocabulary::unknown) || is(id, Vocabulary::control)) return {};
  if (is(id, Vocabulary::user_defined)) return token(id);
  return std::visit([&](const auto& pieces) { return std::string(pieces.text_of(id)); }, pieces_);
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (std::int32_t id : ids) text += piece(id);
  const bool from_the_beginning = !ids.empty() && ids[0] == vocabulary_->bos;
  if (from_the_beginning && vocabulary_->add_space_prefix && !text.empty() && text[0] == ' ') text.erase(0, 1);
  return text;
}

std::vector<Tokenizer::Part> Tokenizer::parts_of(std::string_view text, ControlTokens control) const {
  std::vector<Part> parts = {{text, -1}};
  for (std::int32_t id : whole_) {
    if (control == ControlTokens::text && !is(id, Vocabulary::user_defined)) continue;
    if (text.find(token(id)) == text.npos) continue;
    std::vector<Part> next;
    for (const Part& part : parts) {
      std::string_view left = part.text;
      for (std::size_t at; part.id < 0 && (at = left.find(token(id))) != left.npos;) {
        if (at > 0) next.push_back({left.substr(0, at), -1});
        next.push_back({{}, id});
        left.remove_prefix(at + token(id).size());
      }
      if (part.id >= 0 || !left.empty()) next.push_back({left, part.id});
    }
    parts = std::move(next);
  }
  return parts;
}

void Tokenizer::append(std::string_view text, ControlTokens control, bool begins,
                       std::vector<std::int32_t>& ids) const {
  if (text.empty()) fail("prompt", "empty", "at least one character");
  if (text.size() > (1u << 28)) fail("prompt", std::to_string(text.size()) + " bytes", "<= 268435456 bytes");
  const std::size_t good = valid_utf8_length(text);
  if (good != text.size()) fail("prompt", "not UTF-8 from byte " + std::to_string(good) + " on", "UTF-8 text");
  for (const Part& part : parts_of(text, control)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else {
      const bool space_before = begins && vocabulary_->add_space_prefix;
      const std::string spaced = space_before ? " " + std::string(part.text) : std::string();
      std::visit([&](const auto& pieces) { pieces.append(space_before ? spaced : part.text, ids); }, pieces_);
    }
    begins = part.id >= 0;
  }
}

}  // namespace tiny_llama
