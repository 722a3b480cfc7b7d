#include "evaluate/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using evaluate::Strings;
using evaluate::words_of;

TEST(Normalised, LosesCasePunctuationArticlesAndBlanks) {
  EXPECT_EQ(evaluate::normalised_words("The  U.S. Army,\n an army; A B"), (Strings{"us", "army", "army", "b"}));
  EXPECT_TRUE(evaluate::normalised_words(" The a an ... ").empty());
}

TEST(Words, AreRunsOfLettersAndDigits) {
  EXPECT_EQ(words_of("The cat's 9 lives: end."), (Strings{"the", "cat", "s", "9", "lives", "end"}));
}

TEST(ExactMatch, IsWithAnyRightAnswerOnceNormalised) {
  EXPECT_TRUE(evaluate::exact_match("the Rome.", {"Paris", "rome"}));
  EXPECT_FALSE(evaluate::exact_match("Rome Italy", {"Paris", "Rome"}));
}

// By hand: 2 words in common of 3 and of 2: precision 2/3, recall 1, F1 4/5.
TEST(AnswerF1, ByHand) {
  EXPECT_DOUBLE_EQ(evaluate::answer_f1("the old stone house", {"stone house"}), 0.8);
  EXPECT_DOUBLE_EQ(evaluate::answer_f1("stone stone", {"stone house"}), 0.5);  // a word counts as often as in both
  EXPECT_DOUBLE_EQ(evaluate::answer_f1("a mill", {"house", "the mill"}), 1);   // the best of the answers
  EXPECT_DOUBLE_EQ(evaluate::answer_f1("mill", {"house"}), 0);
  EXPECT_DOUBLE_EQ(evaluate::answer_f1("the", {"a"}), 1);
}

// The worked example of Lin 2004 ("ROUGE: A Package for Automatic Evaluation of Summaries"), section 3.1.
TEST(Rouge, LinsPoliceAndGunman) {
  const char *s1 = "police killed the gunman", *s2 = "police kill the gunman", *s3 = "the gunman kill police",
             *s4 = "the gunman police killed";
  EXPECT_DOUBLE_EQ(evaluate::rouge_l(s2, s1), 3.0 / 4);
  EXPECT_DOUBLE_EQ(evaluate::rouge_l(s3, s1), 2.0 / 4);
  EXPECT_DOUBLE_EQ(evaluate::rouge_l(s4, s1), 2.0 / 4);
  // "the gunman" is the one bigram in common, so that ROUGE-2 cannot tell them apart.
  EXPECT_DOUBLE_EQ(evaluate::rouge_n(s2, s1, 2), 1.0 / 3);
  EXPECT_DOUBLE_EQ(evaluate::rouge_n(s3, s1, 2), 1.0 / 3);
}

// By hand: "the" counts twice of three; 3 unigrams in common of 4 and of 6, 1 bigram of 3 and of 5.
TEST(Rouge, ByHandOfDifferentLengths) {
  EXPECT_DOUBLE_EQ(evaluate::rouge_n("the cat the the", "the cat sat on the mat", 1), 2 * 3.0 / 10);
  EXPECT_DOUBLE_EQ(evaluate::rouge_n("the cat the the", "the cat sat on the mat", 2), 2 * 1.0 / 8);
  EXPECT_DOUBLE_EQ(evaluate::rouge_l("the cat the the", "the cat sat on the mat"), 2 * 3.0 / 10);
  EXPECT_DOUBLE_EQ(evaluate::rouge_n("", "the cat", 1), 0);
  EXPECT_DOUBLE_EQ(evaluate::rouge_l("", ""), 0);
}

// The worked examples of Papineni et al. 2002 ("BLEU: a Method for Automatic Evaluation of Machine Translation"),
// sections 2.1 and 2.1.1.
class PapinenisExamples : public testing::Test {
 protected:
  const std::vector<Strings> references = {
      words_of("It is a guide to action that ensures that the military will forever heed Party commands."),
      words_of("It is the guiding principle which guarantees the military forces always being under the command of "
               "the Party."),
      words_of("It is the practical guide for the army always to heed the directions of the party.")};
  const Strings good =
      words_of("It is a guide to action which ensures that the military always obeys the commands of the party.");
  const Strings bad = words_of("It is to insure the troops forever hearing the activity guidebook that party direct.");
};

TEST_F(PapinenisExamples, ModifiedPrecisions) {
  const auto precision = [&](const Strings& words, std::size_t n) {
    const evaluate::Precision p = evaluate::modified_precision(words, references, n);
    return std::make_pair(p.common, p.all);
  };
  EXPECT_EQ(precision(good, 1), std::make_pair(17, 18));
  EXPECT_EQ(precision(good, 2), std::make_pair(10, 17));
  EXPECT_EQ(precision(bad, 1), std::make_pair(8, 14));
  EXPECT_EQ(precision(bad, 2), std::make_pair(1, 13));
}

TEST(Bleu, PapinenisSevenThes) {
  const evaluate::Precision p =
      evaluate::modified_precision(words_of("the the the the the the the"),
                                   {words_of("The cat is on the mat."), words_of("There is a cat on the mat.")}, 1);
  EXPECT_EQ(p.common, 2);
  EXPECT_EQ(p.all, 7);
}

// By hand: trigrams "it is a", "is a guide", "a guide to", "guide to action", "ensures that the", "that the military",
// "of the party" of 16; 4-grams "it is a guide", "is a guide to", "a guide to action", "ensures that the military" of
// 15; the candidate is as long as the second reference.
TEST_F(PapinenisExamples, BleuIsTheGeometricMean) {
  const double product = 17.0 / 18 * 10.0 / 17 * 7.0 / 16 * 4.0 / 15;
  EXPECT_NEAR(evaluate::bleu(good, references), std::pow(product, 0.25), 1e-12);
}

TEST(Bleu, OfItselfIsOneAndOfNothingInCommonZero) {
  EXPECT_DOUBLE_EQ(evaluate::bleu(words_of("a b c d e"), {words_of("a b c d e")}), 1);
  EXPECT_DOUBLE_EQ(evaluate::bleu(words_of("a b"), {words_of("a b")}), 1);
  EXPECT_DOUBLE_EQ(evaluate::bleu(words_of("a b c d"), {words_of("e f g h")}), 0);
  EXPECT_DOUBLE_EQ(evaluate::bleu({}, {words_of("e f g h")}), 0);
}

// By hand: all of "a b c d" is in the reference of five words: exp(1 - 5 / 4).
TEST(Bleu, BrevityPenalty) {
  EXPECT_NEAR(evaluate::bleu(words_of("a b c d"), {words_of("a b c d e")}), std::exp(-0.25), 1e-12);
}

TEST(SelfBleu, IsOneOfEqualTextsAndZeroOfDifferentOnes) {
  EXPECT_DOUBLE_EQ(evaluate::self_bleu({"a b c d", "A b, c d", "a b c d"}), 1);
  EXPECT_DOUBLE_EQ(evaluate::self_bleu({"a b c d", "e f g h"}), 0);
  EXPECT_DOUBLE_EQ(evaluate::self_bleu({"a b c d"}), 0);
}

}  // namespace
