#include "buzz/score/calibration.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "oracle_twin.h"

namespace {

using buzz::CalibratedModel;
using buzz::Calibration;
using buzz::FileError;
using buzz::InvalidArgument;
using oracle::refused;
using Floats = std::vector<float>;

const CalibratedModel kModel{"a model", 3, 2, 3, 1};

/// Layer 1 slides and has none.
Calibration some() {
  Calibration c(kModel);
  Floats weights;
  for (int i = 0; i < 10; ++i) weights.push_back(0.5f * static_cast<float>(i) - 1);
  c.set(0, weights);
  for (float& w : weights) w = -3 * w;
  c.set(2, weights);
  return c;
}
std::string bytes_of(const Calibration& c) {
  std::ostringstream out;
  c.save(out);
  return out.str();
}
void load(Calibration& c, const std::string& file) {
  std::istringstream in(file);
  c.load(in);
}
std::string load_refuses(const std::string& file) {
  Calibration c = some();
  const std::string before = bytes_of(c), field = refused<FileError>([&] { load(c, file); });
  EXPECT_EQ(bytes_of(c), before) << "as it was";
  return field;
}

TEST(Calibration, HasTheWeightsOfSomeLayers) {
  const Calibration c = some();
  EXPECT_EQ(c.head_size(), 5);
  EXPECT_TRUE(c.has(0));
  EXPECT_FALSE(c.has(1));
  EXPECT_TRUE(c.has(2));
  EXPECT_FALSE(c.has(3));
  EXPECT_FALSE(c.has(-1));
  EXPECT_EQ(Floats(c.weights(0, 0), c.weights(0, 0) + 5), (Floats{-1, -0.5f, 0, 0.5f, 1}));
  EXPECT_EQ(Floats(c.weights(2, 1), c.weights(2, 1) + 5), (Floats{-4.5f, -6, -7.5f, -9, -10.5f}));
}

TEST(Calibration, IsWhatItWasAfterAFile) {
  Calibration c;
  load(c, bytes_of(some()));
  EXPECT_EQ(bytes_of(c), bytes_of(some()));
  EXPECT_EQ(c.model().name, "a model");
  EXPECT_EQ(c.checksum(), some().checksum());
  Calibration nameless(CalibratedModel{"", 1, 1, 1, 1});
  load(c, bytes_of(nameless));
  EXPECT_EQ(c.model().name, "");
  EXPECT_FALSE(c.has(0));
}

/// The format: it may change with its version alone.
TEST(Calibration, HasAFileOfThisForm) {
  const std::string file = bytes_of(some());
  const auto number = [&](std::size_t at) {
    long long x = 0;
    for (int i = 7; i >= 0; --i) x = x * 256 + static_cast<unsigned char>(file[at + static_cast<std::size_t>(i)]);
    return x;
  };
  EXPECT_EQ(file.substr(0, 4), "BUZW");
  EXPECT_EQ(number(4), 1);
  EXPECT_EQ(number(12), 7);
  EXPECT_EQ(file.substr(20, 7), "a model");
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(number(27 + 8 * i), (std::vector<long long>{3, 2, 3, 1})[i]);
  EXPECT_EQ(number(59), 1);
  EXPECT_EQ(file.substr(67, 4), std::string("\0\0\x80\xbf", 4)) << "-1";
  EXPECT_EQ(number(107), 0);
  EXPECT_EQ(number(115), 1);
  ASSERT_EQ(file.size(), 163u + 8);
  buzz::Checksum sum;
  sum.add(reinterpret_cast<const unsigned char*>(file.data()), 163);
  EXPECT_EQ(static_cast<std::uint64_t>(number(163)), sum.value());
  EXPECT_EQ(some().checksum(), sum.value());
}

TEST(Calibration, ThatIsDamagedAnywhereIsRefused) {
  const std::string file = bytes_of(some());
  for (std::size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_NE(load_refuses(damaged), "nothing") << i;
    EXPECT_EQ(load_refuses(file.substr(0, i)), "stream") << i;
  }
  EXPECT_EQ(load_refuses("BUZZ" + file.substr(4)), "magic");
  EXPECT_EQ(load_refuses(file.substr(0, 4) + '\2' + file.substr(5)), "version");
  EXPECT_EQ(load_refuses(file.substr(0, 163) + "12345678"), "checksum");
}

TEST(Calibration, OfHugeSizesIsRefusedBeforeTheyAreAllocated) {
  std::string file = bytes_of(some()).substr(0, 59);
  for (std::size_t at : {27u, 35u, 43u, 51u}) file.replace(at, 8, std::string("\0\0\1\0\0\0\0\0", 8));  // 65536
  EXPECT_EQ(load_refuses(file + std::string("\1\0\0\0\0\0\0\0", 8)), "stream");
  file.replace(27, 8, std::string("\1\0\1\0\0\0\0\0", 8));
  EXPECT_EQ(load_refuses(file), "layers");
}

TEST(Calibration, OfWeightsThatAreNotFiniteIsRefused) {
  std::string file = bytes_of(some());
  file.replace(67, 4, std::string("\0\0\xc0\x7f", 4));
  EXPECT_EQ(load_refuses(file), "weights");
}

TEST(Calibration, OfAnotherModelIsRefusedByName) {
  const Calibration c = some();
  EXPECT_NO_THROW(c.require_model(kModel));
  CalibratedModel m = kModel;
  const auto field = [&] { return refused<FileError>([&] { c.require_model(m); }); };
  m.name = "a mode";
  EXPECT_EQ(field(), "calibration.name");
  m = kModel;
  m.layers = 4;
  EXPECT_EQ(field(), "calibration.layers");
  m = kModel;
  m.kv_heads = 1;
  EXPECT_EQ(field(), "calibration.kv_heads");
  m = kModel;
  m.key_dim = 1;
  EXPECT_EQ(field(), "calibration.key_dim");
  m = kModel;
  m.value_dim = 3;
  EXPECT_EQ(field(), "calibration.value_dim");
}

TEST(Calibration, RefusesSizesAndWeightsByName) {
  const auto made = [](const CalibratedModel& m) { return refused<InvalidArgument>([&] { Calibration c(m); }); };
  EXPECT_EQ(made({std::string(256, 'a'), 1, 1, 1, 1}), "name");
  EXPECT_EQ(made({std::string(255, 'a'), 1, 1, 1, 1}), "nothing");
  EXPECT_EQ(made({"", 0, 1, 1, 1}), "layers");
  EXPECT_EQ(made({"", 1, 0, 1, 1}), "kv_heads");
  EXPECT_EQ(made({"", 1, 65537, 1, 1}), "kv_heads");
  EXPECT_EQ(made({"", 1, 1, 0, 1}), "key_dim");
  EXPECT_EQ(made({"", 1, 1, 1, -1}), "value_dim");
  Calibration c = some();
  const auto set = [&](int layer, const Floats& weights) {
    return refused<InvalidArgument>([&] { c.set(layer, weights); });
  };
  EXPECT_EQ(set(3, Floats(10)), "layer");
  EXPECT_EQ(set(-1, Floats(10)), "layer");
  EXPECT_EQ(set(0, Floats(9)), "weights");
  EXPECT_EQ(set(0, {}), "weights");
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Floats weights(10);
    weights[7] = bad;
    EXPECT_EQ(set(0, weights), "weights");
  }
  EXPECT_EQ(bytes_of(c), bytes_of(some()));
}

TEST(Calibration, HasAChecksumOfItsOwn) {
  Calibration other = some();
  other.set(0, Floats(10, 1.f));
  EXPECT_NE(other.checksum(), some().checksum());
  CalibratedModel m = kModel;
  m.name = "another";
  EXPECT_NE(Calibration(m).checksum(), Calibration(kModel).checksum());
}

TEST(Calibration, IsLoadedFromAPath) {
  const std::string path = testing::TempDir() + "calibration_test.calibration";
  buzz::save_file(some(), path);
  const auto loaded = buzz::load_calibration(path);
  EXPECT_EQ(loaded->checksum(), some().checksum());
  EXPECT_EQ(loaded->path(), path);
  EXPECT_EQ(some().path(), "");
  std::remove(path.c_str());
  EXPECT_EQ(refused<FileError>([&] { buzz::load_calibration(path); }), "path");
}

}  // namespace
