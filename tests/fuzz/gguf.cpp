// Any bytes as a GGUF file: every value and tensor of it can be read or is refused, and so can the model that it says
// it is.

#include "tiny_llama/gguf.h"

#include <iterator>

#include "fuzz.h"
#include "tiny_llama/model.h"

namespace {

using tiny_llama::Gguf;

constexpr const char* keys[] = {"general.architecture",
                                "general.alignment",
                                "llama.block_count",
                                "llama.rope.freq_base",
                                "tokenizer.ggml.tokens",
                                "tokenizer.ggml.scores",
                                "tokenizer.ggml.merges",
                                "tokenizer.ggml.token_type",
                                "tokenizer.ggml.add_bos_token",
                                "a"};

/// A value as every type: one of them is right, the others are refused.
void read_value(const Gguf& file, const std::string& key) {
  std::size_t sum = 0;
  fuzz::refuses<buzz::FileError>([&] { sum += static_cast<std::size_t>(file.integer(key, 0, INT64_MAX)); });
  fuzz::refuses<buzz::FileError>([&] { sum += file.number(key) > 0; });
  fuzz::refuses<buzz::FileError>([&] { sum += file.boolean(key, false); });
  fuzz::refuses<buzz::FileError>([&] { sum += file.text(key).size(); });
  fuzz::refuses<buzz::FileError>([&] {
    for (std::string_view text : file.texts(key)) sum += text.size() + tiny_llama::printable(text).size();
  });
  fuzz::refuses<buzz::FileError>([&] { sum += file.numbers<float>(key).size(); });
  fuzz::refuses<buzz::FileError>([&] { sum += file.numbers<std::int32_t>(key).size(); });
}

void read_tensors(const Gguf& file) {
  for (const auto& [name, tensor] : file.tensors()) {
    std::int64_t size = 1;
    for (std::int64_t length : tensor.shape) size *= length;
    fuzz::require(size == tensor.size && !name.empty(), "the size of a tensor");
    std::vector<float> values(static_cast<std::size_t>(tensor.size));
    tiny_llama::to_float(tensor, values.data());
  }
}

void tokenise(const tiny_llama::Tokenizer& tokenizer) {
  const std::vector<std::int32_t> ids = tokenizer.encode("ab \xE2\x96\x81 a\nb");
  for (std::int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer.size(), "a token that is none");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::refuses<buzz::FileError>([&] {
    const Gguf file = Gguf::parse(std::vector<char>(data, data + size));
    read_value(file, keys[size % std::size(keys)]);  // one, since exceptions take their time
    read_tensors(file);
    fuzz::refuses<buzz::FileError>([&] { tokenise(tiny_llama::Tokenizer(tiny_llama::read_vocabulary(file))); });
    const tiny_llama::Model model = tiny_llama::read_model(file);
    fuzz::require(model.parameters > 0, "a model of no parameters");
  });
  return 0;
}
