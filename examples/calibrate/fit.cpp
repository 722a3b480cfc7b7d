#include "calibrate/fit.h"

#include <Eigen/Cholesky>
#include <cmath>

namespace calibrate {

Sums::Sums(Eigen::Index features) : n_(features), products_(Eigen::MatrixXd::Zero(n_ + 2, n_ + 2)) {}

void Sums::add_products(const Eigen::MatrixXd& rows) {
  products_.selfadjointView<Eigen::Lower>().rankUpdate(rows.transpose());
}

Sums& Sums::operator+=(const Sums& other) {
  products_ += other.products_;
  return *this;
}

Line Sums::fit(double ridge) const {
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

double Sums::correlation(const Line& line) const {
  const Eigen::MatrixXd c = covariance();
  const double both = c.row(n_).head(n_).dot(line.weights),
               estimate = line.weights.dot(c.topLeftCorner(n_, n_).selfadjointView<Eigen::Lower>() * line.weights),
               product = estimate * c(n_, n_);
  return product > 0 ? both / std::sqrt(product) : 0;
}

Eigen::MatrixXd Sums::covariance() const {
  const Eigen::VectorXd means = products_.row(n_ + 1).head(n_ + 1) / rows();
  return products_.topLeftCorner(n_ + 1, n_ + 1) / rows() - means * means.transpose();
}

}  // namespace calibrate
