// Ridge regression in closed form, of sums that need no rows.
#pragma once

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <cmath>

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
  explicit Sums(Eigen::Index features) : n_(features), products_(Eigen::MatrixXd::Zero(n_ + 2, n_ + 2)) {}

  /// More rows: features [rows, features], target [rows]. O(rows * features^2).
  template <class Features, class Target>
  void add(const Features& features, const Target& target) {
    Eigen::MatrixXd rows(features.rows(), n_ + 2);
    rows.leftCols(n_) = features.template cast<double>();
    rows.col(n_) = target.template cast<double>();
    rows.col(n_ + 1).setOnes();
    products_.selfadjointView<Eigen::Lower>().rankUpdate(rows.transpose());
  }
  Sums& operator+=(const Sums& other) {
    products_ += other.products_;
    return *this;
  }
  double rows() const { return products_(n_ + 1, n_ + 1); }

  /// Of standardised features, with `ridge` beside each one's variance of 1, taken back to the features as they are.
  /// One that never changes has weight 0. O(features^3).
  Line fit(double ridge) const {
    const Eigen::VectorXd means = products_.row(n_ + 1).head(n_ + 1) / rows();
    const Eigen::MatrixXd c = covariance();
    Eigen::VectorXd scale(n_);
    for (Eigen::Index i = 0; i < n_; ++i) {
      const double smallest = 1e-12 * products_(i, i) / rows();  // less is rounding
      scale[i] = c(i, i) > smallest ? 1 / std::sqrt(c(i, i)) : 0;
    }
    Eigen::MatrixXd correlations = scale.asDiagonal() * c.topLeftCorner(n_, n_) * scale.asDiagonal();
    correlations.diagonal().array() += ridge;
    const Eigen::VectorXd with_target = scale.cwiseProduct(c.row(n_).head(n_).transpose());
    Line line;
    line.weights = scale.cwiseProduct(correlations.selfadjointView<Eigen::Lower>().ldlt().solve(with_target));
    line.bias = means[n_] - line.weights.dot(means.head(n_));
    return line;
  }

  /// Of a line's estimates with the target, over these rows; 0 where either never changes.
  double correlation(const Line& line) const {
    const Eigen::MatrixXd c = covariance();
    const double both = c.row(n_).head(n_).dot(line.weights),
                 estimate = line.weights.dot(c.topLeftCorner(n_, n_).selfadjointView<Eigen::Lower>() * line.weights),
                 product = estimate * c(n_, n_);
    return product > 0 ? both / std::sqrt(product) : 0;
  }

 private:
  /// Of features and target, the lower half.
  Eigen::MatrixXd covariance() const {
    const Eigen::VectorXd means = products_.row(n_ + 1).head(n_ + 1) / rows();
    return products_.topLeftCorner(n_ + 1, n_ + 1) / rows() - means * means.transpose();
  }

  Eigen::Index n_;
  Eigen::MatrixXd products_;  // [features + 2, features + 2], of features, target, 1; the lower half
};

}  // namespace calibrate
