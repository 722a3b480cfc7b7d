// Files that earlier versions saved are loaded, and what follows is what would have followed.

#include <gtest/gtest.h>

#include <cmath>

#include "saved_caches.h"

namespace {

/// The cache's file of a version, beside the same calls that were made before it was saved.
template <class C>
void goes_on(const std::string& version, const std::string& name, C& loaded, C& twin) {
  SCOPED_TRACE(name);
  saved::calls(twin, 20);
  twin.pin(twin.next_position(), 1);
  saved::calls(loaded, 7);  // of which nothing stays
  ASSERT_NO_THROW(buzz::load_file(loaded, BUZZ_TEST_DIR "/data/saved/" + version + "/" + name + ".buzz"));
  for (int more = 0; more < 3; ++more) {
    ASSERT_EQ(loaded.rows(), twin.rows());
    ASSERT_EQ(loaded.next_position(), twin.next_position());
    EXPECT_EQ(loaded.regions(), twin.regions());
    for (int h = 0; h < saved::kv_heads; ++h) {
      ASSERT_EQ(loaded.scores(h).size, twin.scores(h).size);
      for (int r = 0; r < loaded.rows(); ++r) EXPECT_EQ(loaded.positions(h)[r], twin.positions(h)[r]);
      for (int r = 0; r < twin.scores(h).size; ++r)
        EXPECT_NEAR(loaded.scores(h)[r], twin.scores(h)[r], 1e-5 * std::abs(twin.scores(h)[r])) << "row " << r;
    }
    const std::vector<float> a = saved::calls(loaded, 9), b = saved::calls(twin, 9);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5f);
  }
  EXPECT_TRUE(loaded.evictor().pins().contains(39)) << "as was pinned before";
}

void are_loaded(const std::string& version) {
  int files = 0;
  saved::for_each([&](const std::string& name, auto cache) {
    auto twin = cache.fork();
    goes_on(version, name, cache, twin);
    ++files;
  });
  EXPECT_EQ(files, 15);
}

TEST(OldFiles, Of010AreLoaded) { are_loaded("0.1.0"); }
TEST(OldFiles, OfArchiveVersion2AreLoaded) { are_loaded("archive-2"); }
TEST(OldFiles, OfArchiveVersion3AreLoaded) { are_loaded("archive-3"); }

TEST(OldFiles, AreRefusedByACacheOfNewerOptions) {
  for (const char* version : {"0.1.0", "archive-2"}) {
    buzz::AttentionOptions o;
    o.window = 5;
    buzz::BuzzCache<float> cache({saved::query_heads, saved::kv_heads, saved::head_dim, saved::max_chunk},
                                 buzz::policy("beehive:rows=16,max_chunk=3"), buzz::Rope{10000.0}, o);
    try {
      buzz::load_file(cache, BUZZ_TEST_DIR "/data/saved/" + std::string(version) + "/accumulated.buzz");
      ADD_FAILURE() << version;
    } catch (const buzz::FileError& e) {
      EXPECT_EQ(e.field(), "attention.window") << version;
    }
  }
}

/// The field that a cache of the policy refuses tova's file of a version for; "nothing" where it loads.
std::string refused(const std::string& version, const std::string& more) {
  buzz::BuzzCache<Eigen::bfloat16> cache({saved::query_heads, saved::kv_heads, saved::head_dim, saved::max_chunk},
                                         buzz::policy("tova:rows=16,max_chunk=3" + more), buzz::Rope{10000.0});
  try {
    buzz::load_file(cache, BUZZ_TEST_DIR "/data/saved/" + version + "/tova.buzz");
  } catch (const buzz::FileError& e) {
    return e.field();
  }
  return "nothing";
}

TEST(OldFiles, AreRefusedByACacheOfAnotherSharing) {
  for (const char* version : {"0.1.0", "archive-2", "archive-3"}) {
    EXPECT_EQ(refused(version, ""), "nothing") << version;
    EXPECT_EQ(refused(version, ",part=0.5"), "nothing") << version << ": a sum has no part";
    EXPECT_EQ(refused(version, ",sharing=model"), "sharing") << version;
    EXPECT_EQ(refused(version, ",sharing=head"), "score") << version;
    EXPECT_EQ(refused(version, ",reduce=mean"), "reduce") << version;
    EXPECT_EQ(refused(version, ",reduce=top"), "reduce") << version;
  }
}

}  // namespace
