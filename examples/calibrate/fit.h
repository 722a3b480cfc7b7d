// Ridge regression in closed form, of sums that need no rows.
#pragma once

#include <Eigen/Core>

namespace calibrate {

/// target = weights . features + bias, about.
struct Line {
  Eigen::VectorXd weights;
  double bias = 0;
};

/// Sums over rows of the products of all pairs of features, target and 1: all that a fit, and how good one is, depend
/// on.
class Sums {
 public:
  explicit Sums(Eigen::Index features);

  /// More rows: features [rows, features], target [rows]. O(rows * features^2).
  template <class Features, class Target>
  void add(const Features& features, const Target& target) {
    Eigen::MatrixXd rows(features.rows(), n_ + 2);
    rows.leftCols(n_) = features.template cast<double>();
    rows.col(n_) = target.template cast<double>();
    rows.col(n_ + 1).setOnes();
    add_products(rows);
  }
  Sums& operator+=(const Sums& other);
  double rows() const { return products_(n_ + 1, n_ + 1); }

  /// Of standardised features, with `ridge` beside each one's variance of 1, taken back to the features as they are.
  /// One that never changes has weight 0. O(features^3).
  Line fit(double ridge) const;

  /// Of a line's estimates with the target, over these rows; 0 where either never changes.
  double correlation(const Line& line) const;

 private:
  void add_products(const Eigen::MatrixXd& rows);
  /// Of features and target, the lower half.
  Eigen::MatrixXd covariance() const;

  Eigen::Index n_;
  Eigen::MatrixXd products_;  // [features + 2, features + 2], of features, target, 1; the lower half
};

}  // namespace calibrate
