#include "buzz/archive.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <sstream>
#include <vector>

#include "oracle_twin.h"

namespace {

using buzz::Reader;
using buzz::Writer;

using Bytes = std::vector<int>;
Bytes bytes(const std::string& s) {
  Bytes result;
  for (char c : s) result.push_back(static_cast<unsigned char>(c));
  return result;
}

std::uint64_t checksum(const std::string& s) {
  buzz::Checksum sum;
  sum.add(reinterpret_cast<const unsigned char*>(s.data()), s.size());
  return sum.value();
}

TEST(Checksum, IsFnv1a) {
  // The values that its authors publish.
  EXPECT_EQ(checksum(""), 0xCBF29CE484222325u);
  EXPECT_EQ(checksum("a"), 0xAF63DC4C8601EC8Cu);
  EXPECT_EQ(checksum("foobar"), 0x85944171F73967E8u);
}

TEST(Checksum, IsTheSameInPieces) {
  buzz::Checksum sum;
  sum.add(reinterpret_cast<const unsigned char*>("foo"), 3);
  sum.add(reinterpret_cast<const unsigned char*>("bar"), 3);
  EXPECT_EQ(sum.value(), checksum("foobar"));
}

TEST(Checksum, ChangesWithEveryBit) {
  std::string s = "what is saved";
  const std::uint64_t whole = checksum(s);
  for (std::size_t i = 0; i < s.size() * 8; ++i) {
    s[i / 8] = static_cast<char>(s[i / 8] ^ (1 << i % 8));
    EXPECT_NE(checksum(s), whole);
    s[i / 8] = static_cast<char>(s[i / 8] ^ (1 << i % 8));
  }
}

TEST(LittleEndian, LeavesALittleEndianHostsBytesAlone) {
  const std::uint16_t probe = 1;
  unsigned char first;
  std::memcpy(&first, &probe, 1);
  unsigned char values[4] = {1, 2, 3, 4};
  buzz::little_endian<2>(values, 2);
  const Bytes expected = first == 1 ? Bytes{1, 2, 3, 4} : Bytes{2, 1, 4, 3};
  EXPECT_EQ(Bytes(values, values + 4), expected);
}

/// One field of each kind.
template <class Archive, class Number, class Array>
void fields(Archive& a, Number& number, Array* array, int count) {
  a.same("whole", 258);
  a.same("real", 0.5);
  a.number("number", number, -3, 7);
  a.array(array, static_cast<std::size_t>(count));
  a.finish();
}

std::string written(int number = -2, int count = 3) {
  std::ostringstream out;
  Writer writer(out);
  std::vector<std::int16_t> array(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) array[static_cast<std::size_t>(i)] = static_cast<std::int16_t>(i + 1);
  fields(writer, number, array.data(), count);
  return out.str();
}

TEST(Writer, WritesTheseBytes) {
  // May change with archive_version alone.
  const Bytes b = bytes(written());
  const Bytes expected = {'B', 'U', 'Z', 'Z',                        //
                          4,   0,   0,   0,   0,   0,   0,    0,     // version
                          2,   1,   0,   0,   0,   0,   0,    0,     // 258
                          0,   0,   0,   0,   0,   0,   0xE0, 0x3F,  // 0.5
                          254, 255, 255, 255, 255, 255, 255,  255,   // -2
                          1,   0,   2,   0,   3,   0};               // the array
  ASSERT_EQ(b.size(), expected.size() + 8);
  EXPECT_EQ(Bytes(b.begin(), b.end() - 8), expected);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 8; ++i) sum |= static_cast<std::uint64_t>(b[expected.size() + i]) << 8 * i;
  EXPECT_EQ(sum, checksum(written().substr(0, expected.size())));
}

TEST(Reader, ReadsWhatWasWritten) {
  for (int count : {0, 1, 3, 2047, 2048, 2049, 10000}) {  // a Writer works in batches of 4096 bytes
    std::istringstream in(written(5, count));
    Reader reader(in);
    int number = 0;
    std::vector<std::int16_t> array(static_cast<std::size_t>(count));
    fields(reader, number, array.data(), count);
    EXPECT_EQ(number, 5);
    for (int i = 0; i < count; ++i) ASSERT_EQ(array[static_cast<std::size_t>(i)], i + 1);
  }
}

TEST(Reader, LeavesWhatFollowsInTheStream) {
  std::istringstream in(written() + "more");
  Reader reader(in);
  int number = 0;
  std::int16_t array[3];
  fields(reader, number, array, 3);
  std::string more;
  in >> more;
  EXPECT_EQ(more, "more");
}

template <class T>
void keeps_bits(const std::vector<T>& values) {
  std::stringstream stream;
  Writer writer(stream);
  writer.array(values.data(), values.size());
  writer.finish();
  std::vector<T> read(values.size());
  Reader reader(stream);
  reader.array(read.data(), read.size());
  reader.finish();
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * sizeof(T)), 0);
}

TEST(Archive, KeepsEveryTypesBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  keeps_bits<float>({0.1f, -0.f, nan, inf, 1e-45f});
  keeps_bits<Eigen::half>({Eigen::half(0.1f), Eigen::half(nan), Eigen::half(-inf)});
  keeps_bits<Eigen::bfloat16>({Eigen::bfloat16(0.1f), Eigen::bfloat16(nan)});
  keeps_bits<std::int8_t>({0, -127, 127});
}

/// The field that a Reader of `file` refuses.
std::string refuses(const std::string& file, int whole = 258, double real = 0.5) {
  return oracle::refused<buzz::FileError>([&] {
    std::istringstream in(file);
    Reader reader(in);
    int number = 0;
    std::int16_t array[3];
    reader.same("whole", whole);
    reader.same("real", real);
    reader.number("number", number, -3, 7);
    reader.array(array, 3);
    reader.finish();
  });
}

TEST(Reader, NamesWhatIsOther) {
  EXPECT_EQ(refuses(written()), "nothing");
  EXPECT_EQ(refuses(written(), 259), "whole");
  EXPECT_EQ(refuses(written(), 258, 0.25), "real");
  EXPECT_EQ(refuses(written(-4)), "number");
  EXPECT_EQ(refuses(written(8)), "number");
  std::string file = written();
  file[0] = 'b';
  EXPECT_EQ(refuses(file), "magic");
  file = written();
  for (const int version : {0, buzz::archive_version + 1}) {
    file[4] = static_cast<char>(version);
    EXPECT_EQ(refuses(file), "version");
  }
  file = written();
  file[file.size() - 9] = static_cast<char>(file[file.size() - 9] ^ 1);  // the array's last byte
  EXPECT_EQ(refuses(file), "checksum");
}

TEST(Reader, TakesAnEarlierFileForOneOfTheValueBefore) {
  const auto refuses_field = [](char version, int expected) {
    std::stringstream file;
    Writer writer(file);
    writer.same_since(3, "newer", 7, 5);
    writer.same("next", 9);
    std::string bytes = file.str();
    if (version < 3) bytes.erase(12, 8);
    bytes[4] = version;
    std::istringstream in(bytes);
    Reader reader(in);
    return oracle::refused<buzz::FileError>([&] {
      reader.same_since(3, "newer", expected, 5);
      reader.same("next", 9);
    });
  };
  EXPECT_EQ(refuses_field(3, 7), "nothing");
  EXPECT_EQ(refuses_field(3, 5), "newer");
  EXPECT_EQ(refuses_field(2, 5), "nothing");
  EXPECT_EQ(refuses_field(2, 7), "newer");
}

TEST(Reader, RefusesEveryTruncation) {
  const std::string file = written();
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_EQ(refuses(file.substr(0, size)), "stream") << size;
}

TEST(Reader, RefusesANumberThatNoIntHolds) {
  std::string file = written();
  file[28 + 6] = 1;  // the number is then 2^48 and more
  EXPECT_EQ(refuses(file), "number");
}

TEST(Writer, SaysThatAStreamRefuses) {
  std::ostringstream out;
  Writer writer(out);
  out.setstate(std::ios::badbit);
  EXPECT_EQ(oracle::refused<buzz::FileError>([&] { writer.finish(); }), "stream");
}

}  // namespace
