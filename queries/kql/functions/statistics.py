"""Functions of statistics: beta, gamma, error function, Welch's test."""

from __future__ import annotations

import math

from queries.kql.functions.declaration import Body, Function

_TINY = 1e-300

_CONVERGED = 1e-15


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    made = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            made *= d * c
        if abs(d * c - 1.0) < _CONVERGED:
            break
    return made


def beta_cdf(x: float, a: float, b: float) -> float | None:
    """Regularised incomplete beta function."""
    if a <= 0 or b <= 0:
        return None
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def beta_pdf(x: float, a: float, b: float) -> float | None:
    """Density of the beta distribution."""
    if a <= 0 or b <= 0 or not 0 <= x <= 1:
        return None
    if x in (0.0, 1.0):
        return 0.0 if (a if x == 0 else b) > 1 else (1.0 if a == b == 1 else math.inf)
    norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(norm + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x))


def beta_inv(p: float, a: float, b: float) -> float | None:
    """The x whose beta_cdf is p, by bisection."""
    if a <= 0 or b <= 0 or not 0 <= p <= 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if (beta_cdf(middle, a, b) or 0.0) < p:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def gamma(x: float) -> float | None:
    """The gamma function; null at its poles."""
    try:
        return math.gamma(x)
    except (ValueError, OverflowError):
        return None


def loggamma(x: float) -> float | None:
    """Logarithm of the absolute value of the gamma function."""
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return None


def welch_test(mean1: float, var1: float, n1: float, mean2: float, var2: float, n2: float) -> float | None:
    """p-value of Welch's t-test of two samples."""
    if n1 < 2 or n2 < 2:
        return None
    s1, s2 = var1 / n1, var2 / n2
    if s1 + s2 <= 0:
        return None
    t = (mean1 - mean2) / math.sqrt(s1 + s2)
    degrees = (s1 + s2) ** 2 / (s1**2 / (n1 - 1) + s2**2 / (n2 - 1))
    return beta_cdf(degrees / (degrees + t * t), degrees / 2, 0.5)


FUNCTIONS = (
    Function("beta_cdf", "The cumulative beta distribution.", Body("r r r", "real", beta_cdf)),
    Function("beta_pdf", "The density of the beta distribution.", Body("r r r", "real", beta_pdf)),
    Function(
        "beta_inv",
        "The value at which the cumulative beta distribution reaches a probability.",
        Body("r r r", "real", beta_inv),
    ),
    Function("gamma", "The gamma function.", Body("r", "real", gamma)),
    Function("loggamma", "The logarithm of the absolute value of the gamma function.", Body("r", "real", loggamma)),
    Function("erf", "The error function.", Body("r", "real", math.erf)),
    Function("erfc", "The complementary error function.", Body("r", "real", math.erfc)),
    Function("welch_test", "The p-value of Welch's t-test of two samples.", Body("r r r r r r", "real", welch_test)),
)
