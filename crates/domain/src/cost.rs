//! Sums of the costs of model calls.

/// Costs are rounded to billionths of a dollar: finer than the price of any call, coarser than floating-point errors.
const UNITS_PER_DOLLAR: f64 = 1e9;

/// Rounds a sum of costs. The database engines add fractions in different orders, so their sums differ in the last
/// digits.
pub fn round_cost(sum: f64) -> f64 {
    (sum * UNITS_PER_DOLLAR).round() / UNITS_PER_DOLLAR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "rounding should make them equal")]
    fn rounding_removes_the_effect_of_the_order_of_addition() {
        assert_eq!(round_cost(0.041_249_999_999_999_995), 0.04125);
        assert_eq!(round_cost(0.1 + 0.2), round_cost(0.3));
        assert_eq!(round_cost(0.000_000_15), 0.000_000_15);
    }
}
