#include "buzz/file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "oracle_twin.h"
#include "temporary_folder.h"
#include "typed.h"

namespace {

namespace fs = std::filesystem;
using oracle::bytes_of;

using Cache = typed::Cache<float>;

/// The field of the FileError that f() is refused with: all that is refused here is the file's fault.
template <class F>
std::string refused(F&& f) {
  return oracle::refused<buzz::FileError>(f);
}

class File : public ::testing::Test, protected TemporaryFolder {
 protected:
  /// `tokens` tokens after.
  static Cache cache(int tokens) {
    const oracle::Config c = oracle::small(oracle::Kind::beehive);
    Cache result(library_shape(c), oracle::library_options<typed::Beehive>(c));
    while (result.next_position() < tokens) feed(result, oracle::Text(), 1);
    return result;
  }
};

TEST_F(File, HoldsWhatSaveWrites) {
  const Cache saved = cache(60);
  buzz::save_file(saved, path("cache"));
  EXPECT_EQ(read("cache"), bytes_of(saved));
  EXPECT_EQ(names(), (std::vector<std::string>{"cache"})) << "the temporary name is gone";
}

TEST_F(File, IsLoaded) {
  const Cache saved = cache(60);
  buzz::save_file(saved, path("cache"));
  Cache loaded = cache(7);
  buzz::load_file(loaded, path("cache"));
  EXPECT_EQ(bytes_of(loaded), bytes_of(saved));
}

TEST_F(File, IsReplacedByALaterSave) {
  buzz::save_file(cache(60), path("cache"));
  const Cache later = cache(3);  // fewer bytes
  buzz::save_file(later, path("cache"));
  EXPECT_EQ(read("cache"), bytes_of(later));
}

TEST_F(File, ReplacesALeftOverTemporaryOne) {
  write("cache.tmp", std::string(1 << 20, 'x'));
  const Cache saved = cache(60);
  buzz::save_file(saved, path("cache"));
  EXPECT_EQ(read("cache"), bytes_of(saved));
  EXPECT_EQ(names(), (std::vector<std::string>{"cache"}));
}

TEST_F(File, OfAModel) {
  const oracle::Config c = oracle::small(oracle::Kind::beehive);
  const auto options = oracle::library_options<typed::Beehive>(c);
  typed::Model<float> saved(library_shape(c), {options, options}), loaded(library_shape(c), {options, options});
  feed(saved.layer(0), oracle::Text(1), 8);
  feed(saved.layer(1), oracle::Text(2), 8);
  buzz::save_file(saved, path("model"));
  buzz::load_file(loaded, path("model"));
  EXPECT_EQ(bytes_of(loaded), bytes_of(saved));
}

TEST_F(File, ThatCannotBeWrittenIsRefused) {
  EXPECT_EQ(refused([&] { buzz::save_file(cache(9), path("no/such/folder")); }), "path");
  EXPECT_TRUE(names().empty());
}

TEST_F(File, ThatIsAFolderIsRefusedAndLeavesNothingBehind) {
  fs::create_directory(path("folder"));
  EXPECT_EQ(refused([&] { buzz::save_file(cache(9), path("folder")); }), "path");
  EXPECT_EQ(names(), (std::vector<std::string>{"folder"}));
}

/// Saving fails after some bytes, as on a full disk.
struct Failing {
  void save(std::ostream& out) const {
    buzz::Writer writer(out);
    out.setstate(std::ios::badbit);
    writer.finish();
  }
};

TEST_F(File, IsAsItWasWhereSavingFails) {
  const Cache saved = cache(60);
  buzz::save_file(saved, path("cache"));
  EXPECT_EQ(refused([&] { buzz::save_file(Failing(), path("cache")); }), "stream");
  EXPECT_EQ(read("cache"), bytes_of(saved));
  EXPECT_EQ(names(), (std::vector<std::string>{"cache"})) << "half a file is of no use";
}

TEST_F(File, OnAFullDiskIsAsItWas) {
  if (!fs::exists("/dev/full")) return;  // Linux has a disk that is always full
  const Cache saved = cache(60);
  buzz::save_file(saved, path("cache"));
  fs::create_symlink("/dev/full", path("cache.tmp"));
  EXPECT_EQ(refused([&] { buzz::save_file(cache(9), path("cache")); }), "stream");
  EXPECT_EQ(read("cache"), bytes_of(saved));
  EXPECT_EQ(names(), (std::vector<std::string>{"cache"}));
}

TEST_F(File, ThatIsNotThereIsRefused) {
  Cache c = cache(9);
  const std::string before = bytes_of(c);
  EXPECT_EQ(refused([&] { buzz::load_file(c, path("none")); }), "path");
  EXPECT_EQ(bytes_of(c), before);
}

TEST_F(File, ThatIsCutShortOrEmptyIsRefused) {
  const std::string whole = bytes_of(cache(60));
  Cache c = cache(9);
  const std::string before = bytes_of(c);
  for (std::size_t size : {std::size_t{0}, std::size_t{3}, whole.size() / 2, whole.size() - 1}) {
    write("cut", whole.substr(0, size));
    EXPECT_EQ(refused([&] { buzz::load_file(c, path("cut")); }), "stream");
    EXPECT_EQ(bytes_of(c), before);
  }
  feed(c, oracle::Text(), 8);  // and usable
  EXPECT_EQ(c.next_position(), 17);
}

}  // namespace
