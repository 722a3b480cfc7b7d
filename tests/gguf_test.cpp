#include "tiny_llama/gguf.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/gguf_builder.h"
#include "model/refused.h"
#include "model/small_model.h"

namespace {

using model::bytes;
using model::GgufBuilder;
using model::list;
using model::small_model;
using model::text;
using tiny_llama::Gguf;
using tiny_llama::Tensor;

Gguf parse(const GgufBuilder& builder) {
  return model::from_file([&] { return Gguf::parse(builder.build()); });
}

/// A file with one F32 tensor [2, 3] called "t".
GgufBuilder one_tensor() {
  GgufBuilder g;
  g.tensor("t") = {"t", {3, 2}, model::tensor_f32, model::random_f32(6, 1)};
  return g;
}

/// Something of everything, in less than a kilobyte.
GgufBuilder mixed() {
  GgufBuilder g = one_tensor();
  g.set("general.alignment", model::u32, bytes<std::uint32_t>(64));
  g.alignment = 64;
  g.set("a.text", model::string, text("sense"));
  g.set("a.true", model::boolean, bytes<std::uint8_t>(1));
  g.set("a.texts", model::array, list<std::string>(model::string, {"", "x", "yz"}));
  g.set("a.floats", model::array, list<float>(model::f32, {1.5f, -2.0f}));
  g.tensor("half") = {"half", {5}, model::tensor_f16, model::random_f16(5, 2)};
  g.tensor("blocks") = {"blocks", {32, 1, 2}, model::tensor_q8_0, model::random_q8_0(64, 3)};
  return g;
}

std::vector<float> floats(const Tensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.size));
  tiny_llama::to_float(tensor, out.data());
  return out;
}

TEST(Gguf, ReadsEveryKindOfMetadata) {
  GgufBuilder g;
  g.set("a.u8", model::u8, bytes<std::uint8_t>(200));
  g.set("a.u32", model::u32, bytes<std::uint32_t>(4000000000u));
  g.set("a.i32", model::i32, bytes<std::int32_t>(-5));
  g.set("a.i64", model::i64, bytes<std::int64_t>(-6000000000));
  g.set("a.f32", model::f32, bytes<float>(0.25f));
  g.set("a.true", model::boolean, bytes<std::uint8_t>(1));
  g.set("a.text", model::string, text("sense"));
  g.set("a.texts", model::array, list<std::string>(model::string, {"", "x", "yz"}));
  g.set("a.floats", model::array, list<float>(model::f32, {1.5f, -2.0f}));
  g.set("a.integers", model::array, list<std::int32_t>(model::i32, {7, -8}));
  g.set("a.empty", model::array, list<float>(model::f32, {}));
  const Gguf file = parse(g);
  EXPECT_EQ(file.integer("a.u8", 0, 255), 200);
  EXPECT_EQ(file.integer("a.u32", 0, 4000000000), 4000000000);
  EXPECT_EQ(file.integer("a.i32", -5, -5), -5);
  EXPECT_EQ(file.integer("a.i64", -6000000000, 0), -6000000000);
  EXPECT_EQ(file.number("a.f32"), 0.25f);
  EXPECT_EQ(file.number("a.other", 3.0f), 3.0f);
  EXPECT_TRUE(file.boolean("a.true", false));
  EXPECT_TRUE(file.boolean("a.other", true));
  EXPECT_EQ(file.text("a.text"), "sense");
  EXPECT_EQ(file.texts("a.texts"), (std::vector<std::string_view>{"", "x", "yz"}));
  EXPECT_EQ(file.numbers<float>("a.floats"), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(file.numbers<std::int32_t>("a.integers"), (std::vector<std::int32_t>{7, -8}));
  EXPECT_TRUE(file.numbers<float>("a.empty").empty());
}

TEST(Gguf, ReadsVersion2And3) {
  for (std::uint32_t version : {2u, 3u}) {
    GgufBuilder g = one_tensor();
    g.version = version;
    EXPECT_EQ(parse(g).tensors().size(), 1u);
  }
}

TEST(Gguf, HasShapesSlowestFirst) {
  const Gguf file = parse(one_tensor());
  const Tensor& tensor = file.tensors().at("t");
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensor.size, 6);
  EXPECT_EQ(tensor.bytes, model::random_f32(6, 1));
}

TEST(Gguf, FindsTensorsByTheFilesAlignment) {
  GgufBuilder g = one_tensor();
  g.tensor("u") = {"u", {1}, model::tensor_f32, bytes<float>(7.0f)};
  g.alignment = 128;
  g.set("general.alignment", model::u32, bytes<std::uint32_t>(128));
  EXPECT_EQ(floats(parse(g).tensors().at("u")), std::vector<float>{7.0f});
}

TEST(Gguf, StaysRightWhenMoved) {
  Gguf first = parse(one_tensor());
  const Gguf second = std::move(first);
  EXPECT_EQ(second.tensors().at("t").bytes, model::random_f32(6, 1));
}

TEST(ToFloat, CopiesF32) {
  GgufBuilder g;
  const float tiny = std::numeric_limits<float>::denorm_min();
  g.tensor("t") = {"t", {3}, model::tensor_f32, bytes<float>(1.1f) + bytes<float>(-0.0f) + bytes<float>(tiny)};
  const std::vector<float> values = floats(parse(g).tensors().at("t"));
  EXPECT_EQ(values, (std::vector<float>{1.1f, -0.0f, tiny}));
  EXPECT_TRUE(std::signbit(values[1]));
}

TEST(ToFloat, WidensF16Exactly) {
  GgufBuilder g;
  std::string data;
  const std::uint16_t halves[] = {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x3555};
  for (std::uint16_t bits : halves) data += bytes<std::uint16_t>(bits);
  g.tensor("t") = {"t", {5}, model::tensor_f16, data};
  EXPECT_EQ(floats(parse(g).tensors().at("t")),
            (std::vector<float>{1.0f, -2.0f, 65504.0f, 1.0f / (1 << 24), 0x1.554p-2f}));
}

TEST(ToFloat, ScalesQ8BlocksExactly) {
  GgufBuilder g;
  std::string data;
  const std::uint16_t scales[] = {0x3800, 0xB400};  // 0.5, -0.25
  for (std::uint16_t scale : scales) {
    data += bytes<std::uint16_t>(scale);
    for (int i = 0; i < 32; ++i) data += static_cast<char>(i == 0 ? -128 : i == 1 ? 127 : i);
  }
  g.tensor("t") = {"t", {64}, model::tensor_q8_0, data};
  const std::vector<float> values = floats(parse(g).tensors().at("t"));
  EXPECT_EQ(values[0], -64.0f);
  EXPECT_EQ(values[1], 63.5f);
  EXPECT_EQ(values[31], 15.5f);
  EXPECT_EQ(values[32], 32.0f);
  EXPECT_EQ(values[63], -7.75f);
}

TEST(Gguf, ReadsOurModelsFile) {
  const Gguf file = Gguf::read(BUZZ_MODEL_DIR "/buzz-tiny-q8_0.gguf");
  EXPECT_EQ(file.tensors().size(), 56u);
  EXPECT_EQ(file.tensors().at("token_embd.weight").shape, (std::vector<std::int64_t>{2048, 256}));
  EXPECT_EQ(file.tensors().at("blk.5.ffn_down.weight").shape, (std::vector<std::int64_t>{256, 768}));
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens").size(), 2048u);
}

TEST(ToFloat, KeepsSubnormals) {
  GgufBuilder g;
  g.tensor("wide") = {"wide", {2}, model::tensor_f32, bytes<std::uint32_t>(1) + bytes<std::uint32_t>(0x807FFFFF)};
  g.tensor("half") = {"half", {2}, model::tensor_f16, bytes<std::uint16_t>(0x8001) + bytes<std::uint16_t>(0x03FF)};
  g.tensor("blocks") = {"blocks", {32}, model::tensor_q8_0, bytes<std::uint16_t>(1) + std::string(32, '\2')};
  const Gguf file = parse(g);
  EXPECT_EQ(floats(file.tensors().at("wide")), (std::vector<float>{0x1p-149f, -0x1.fffffcp-127f}));
  EXPECT_EQ(floats(file.tensors().at("half")), (std::vector<float>{-0x1p-24f, 0x3FFp-24f}));
  EXPECT_EQ(floats(file.tensors().at("blocks")), std::vector<float>(32, 0x1p-23f));
}

TEST(ToFloatRefuses, NumbersThatAreNotFinite) {
  const auto read = [](std::uint32_t type, std::uint64_t length, const std::string& data) {
    GgufBuilder g;
    g.tensor("blk.7.x") = {"blk.7.x", {length}, type, data};
    return floats(parse(g).tensors().at("blk.7.x"));
  };
  const std::string which = "'blk.7.x' = element 2, which is not finite, allowed: finite ones";
  for (std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFC00001u, 0x7F800001u})
    EXPECT_REFUSED(which, read(model::tensor_f32, 3, std::string(8, ' ') + bytes(bits))) << bits;
  const std::uint16_t halves[] = {0x7C00, 0xFC00, 0x7E00, 0xFE01, 0x7C01};
  for (std::uint16_t bits : halves) {
    EXPECT_REFUSED(which, read(model::tensor_f16, 3, std::string(4, ' ') + bytes(bits))) << bits;
    const std::string good = bytes<std::uint16_t>(0x3C00) + std::string(32, '\1');
    for (char quants : {'\1', '\0'})  // that are 0 all of them, too
      EXPECT_REFUSED("'blk.7.x' = scale of block 1, which is not finite, allowed: finite ones",
                     read(model::tensor_q8_0, 64, good + bytes(bits) + std::string(32, quants)));
  }
}

TEST(GgufRefuses, AMissingFile) {
  EXPECT_REFUSED("model file = 'no/such.gguf', allowed: a GGUF file that can be read", Gguf::read("no/such.gguf"));
}

TEST(GgufRefuses, AFolder) { EXPECT_REFUSED_WITH("a GGUF file that can be read", Gguf::read(BUZZ_MODEL_DIR)); }

TEST(GgufRefuses, AnEmptyFile) {
  EXPECT_REFUSED("magic = 4 bytes, allowed: <= 0 bytes, what is left of the file (it is truncated or damaged)",
                 Gguf::parse({}));
}

TEST(GgufRefuses, AnotherMagic) {
  GgufBuilder g = one_tensor();
  g.magic = "GGU\n";
  EXPECT_REFUSED("magic = 'GGU?', allowed: 'GGUF'", parse(g));
}

TEST(GgufRefuses, OtherVersions) {
  for (std::uint32_t version : {0u, 1u, 4u, 0x03000000u}) {  // the last is 3 on a big-endian machine
    GgufBuilder g = one_tensor();
    g.version = version;
    EXPECT_REFUSED("version = " + std::to_string(version) + ", allowed: 2 or 3, little-endian", parse(g));
  }
}

TEST(GgufRefuses, EveryTruncation) {
  const std::vector<char> whole = mixed().build();
  ASSERT_NO_THROW(Gguf::parse(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW(Gguf::parse(part), buzz::FileError) << length << " of " << whole.size();
  }
}

/// The message of a file that may be bad in any way; "" if it is read. Any other exception fails the test.
std::string outcome(std::vector<char> file) {
  try {
    const Gguf parsed = Gguf::parse(std::move(file));
    for (const auto& [name, tensor] : parsed.tensors()) floats(tensor);
    return "";
  } catch (const buzz::FileError& error) {
    return error.what();
  }
}

TEST(GgufRefuses, OrReadsEveryFlippedByteWithoutHarm) {
  const std::vector<char> whole = mixed().build();
  std::mt19937 random(7);
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int flip = 0; flip < 4; ++flip) {
      std::vector<char> flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ static_cast<char>(1 + random() % 255));
      refused += outcome(std::move(flipped)) != "";
    }
  }
  EXPECT_GT(refused, 200);
}

TEST(GgufRefuses, OrReadsManyDamagedBytesWithoutHarm) {
  const std::vector<char> whole = small_model().build();
  std::mt19937 random(8);
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::vector<char> damaged = whole;
    const std::size_t header = 1500, most = whole.size();
    for (auto left = 1 + random() % 8; left > 0; --left) {
      const std::size_t at = random() % (round % 2 == 0 ? header : most);
      damaged[at] = static_cast<char>(random() % 4 == 0 ? 0xFF : random() % 256);
    }
    refused += outcome(std::move(damaged)) != "";
  }
  EXPECT_GT(refused, 200);
}

const std::uint64_t huge[] = {1u << 20, 1ull << 32, (1ull << 61) + 1, (1ull << 63) - 1, 1ull << 63, ~0ull};

TEST(GgufRefuses, CountsThatTheFileCannotHold) {
  for (std::uint64_t count : huge) {
    GgufBuilder g = one_tensor();
    g.extra_tensors = count - 1;
    EXPECT_REFUSED_WITH("tensor count = " + std::to_string(count) + ", allowed: <= ", parse(g));
    g = one_tensor();
    g.extra_metadata = count;
    EXPECT_REFUSED_WITH("metadata count = " + std::to_string(count) + ", allowed: <= ", parse(g));
  }
}

TEST(GgufRefuses, LengthsThatTheFileCannotHold) {
  for (std::uint64_t length : huge) {
    const std::string number = std::to_string(length);
    GgufBuilder g = one_tensor();
    g.set("k", model::string, bytes<std::uint64_t>(length));
    EXPECT_REFUSED_WITH("'k' = " + number + " bytes, allowed: <= ", parse(g));
    for (std::uint32_t element : {model::u8, model::f32, model::string, model::u64}) {
      g.set("k", model::array, bytes<std::uint32_t>(element) + bytes<std::uint64_t>(length));
      EXPECT_REFUSED_WITH("'k' elements = " + number + ", allowed: <= ", parse(g));
    }
    g.set("k", model::array, bytes<std::uint32_t>(model::string) + bytes<std::uint64_t>(1) + bytes(length));
    EXPECT_REFUSED_WITH("'k' = " + number + " bytes, allowed: <= ", parse(g));
  }
}

TEST(GgufRefuses, UnknownTypes) {
  GgufBuilder g = one_tensor();
  g.set("k", 13, bytes<std::uint64_t>(0));
  EXPECT_REFUSED("'k' type = 13, allowed: 0 to 12", parse(g));
  g.set("k", model::array, bytes<std::uint32_t>(99) + bytes<std::uint64_t>(0));
  EXPECT_REFUSED("'k' type = 99, allowed: 0 to 12", parse(g));
  g = one_tensor();
  g.tensor("t").type = 2;
  EXPECT_REFUSED(
      "'t' type = 2, allowed: 0 (F32), 1 (F16), 3 (Q4_1), 6 (Q5_0), 8 (Q8_0), 12 (Q4_K), 14 (Q6_K), 30 (BF16)",
      parse(g));
}

TEST(GgufRefuses, ArraysOfArrays) {
  GgufBuilder g = one_tensor();
  std::string deep;
  for (int depth = 0; depth < 1000; ++depth) deep += bytes<std::uint32_t>(model::array) + bytes<std::uint64_t>(1);
  g.set("k", model::array, deep);
  EXPECT_REFUSED("'k' = an array of arrays, allowed: an array of numbers or texts", parse(g));
}

TEST(GgufRefuses, ABooleanThatIsNeither) {
  GgufBuilder g = one_tensor();
  g.set("k", model::boolean, bytes<std::uint8_t>(2));
  EXPECT_REFUSED("'k' = 2, allowed: 0 or 1", parse(g));
}

TEST(GgufRefuses, NamesTwiceOrOfNoLength) {
  GgufBuilder g = one_tensor();
  g.metadata = {{"k", bytes<std::uint32_t>(model::u8) + "x"}, {"k", bytes<std::uint32_t>(model::u8) + "x"}};
  EXPECT_REFUSED("metadata key = 'k', allowed: each key once", parse(g));
  g = one_tensor();
  g.tensors.push_back(g.tensors[0]);
  EXPECT_REFUSED("tensor = 't', allowed: each name once", parse(g));
  g = one_tensor();
  g.tensors[0].name = "";
  EXPECT_REFUSED("tensor name length = 0, allowed: 1 to 64", parse(g));
  g.tensors[0].name = std::string(65, 'x');
  EXPECT_REFUSED("tensor name length = 65, allowed: 1 to 64", parse(g));
  g = one_tensor();
  g.set("", model::u8, "x");
  EXPECT_REFUSED("metadata key length = 0, allowed: 1 to 65535", parse(g));
}

TEST(GgufRefuses, OffsetsOutOfRange) {
  const std::string all = ", allowed: <= 24, the bytes of tensor data in the file";
  for (std::uint64_t offset : {std::uint64_t{32}, std::uint64_t{1} << 40, ~std::uint64_t{0} - 31}) {
    GgufBuilder g = one_tensor();
    g.tensors[0].offset = offset;
    EXPECT_REFUSED("tensor offset + bytes = " + std::to_string(offset) + " + 24" + all, parse(g));
  }
  GgufBuilder g = one_tensor();
  g.tensors[0].offset = 4;
  EXPECT_REFUSED("'t' offset = 4, allowed: a multiple of 32", parse(g));
}

TEST(GgufRefuses, ShapesOutOfRange) {
  GgufBuilder g = one_tensor();
  g.tensors[0].lengths = {};
  EXPECT_REFUSED("'t' axes = 0, allowed: 1 to 4", parse(g));
  g.tensors[0].lengths = {1, 1, 1, 1, 1};
  EXPECT_REFUSED("'t' axes = 5, allowed: 1 to 4", parse(g));
  g.tensors[0].lengths = {3, 0};
  EXPECT_REFUSED_WITH("'t' shape = 0, allowed: 1 to ", parse(g));
  for (std::uint64_t length : {1ull << 32, 1ull << 62, ~0ull}) {
    g.tensors[0].lengths = {1 << 16, 1 << 16, length};
    EXPECT_REFUSED("'t' shape = " + std::to_string(length) + ", allowed: 1 to 256", parse(g));
  }
  g.tensors[0].lengths = {1 << 20, 1 << 20};
  EXPECT_REFUSED_WITH("tensor offset + bytes = 0 + 4398046511104, allowed: <= 24", parse(g));
  g.tensors[0] = {"t", {33}, model::tensor_q8_0, std::string(34, ' ')};
  EXPECT_REFUSED("'t' shape = 33, allowed: a multiple of 32 (Q8_0)", parse(g));
  g.tensors[0] = {"t", {128}, model::tensor_q4_k, std::string(144, ' ')};
  EXPECT_REFUSED("'t' shape = 128, allowed: a multiple of 256 (Q4_K)", parse(g));
}

TEST(GgufRefuses, AlignmentsThatAreNone) {
  for (std::uint32_t alignment : {0u, 3u, 48u, 1u << 21, ~0u}) {
    GgufBuilder g = one_tensor();
    g.set("general.alignment", model::u32, bytes<std::uint32_t>(alignment));
    EXPECT_REFUSED_WITH("general.alignment = " + std::to_string(alignment) + ", allowed: ", parse(g));
  }
}

TEST(GgufRefuses, MetadataThatIsMissingOrOfAnotherType) {
  GgufBuilder g;
  g.set("a.u64", model::u64, bytes<std::uint64_t>(~0ull));
  g.set("a.f32", model::f32, bytes<float>(1.0f));
  g.set("a.floats", model::array, list<float>(model::f32, {1.0f}));
  const Gguf file = parse(g);
  EXPECT_REFUSED("b = missing, allowed: metadata that a llama model has", file.integer("b", 0, 1));
  EXPECT_REFUSED("b = missing, allowed: metadata that a llama model has", file.texts("b"));
  EXPECT_REFUSED("a.f32 = a value of type 6, allowed: an integer", file.integer("a.f32", 0, 1));
  EXPECT_REFUSED("a.f32 = a value of type 6, allowed: a text", file.text("a.f32"));
  EXPECT_REFUSED("a.f32 = a value of type 6, allowed: an array of texts", file.texts("a.f32"));
  EXPECT_REFUSED("a.floats = elements of type 6, allowed: an array of texts", file.texts("a.floats"));
  EXPECT_REFUSED("a.u64 = 18446744073709551615, allowed: <= 9223372036854775807", file.integer("a.u64", 0, 5));
}

}  // namespace
