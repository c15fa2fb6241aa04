//! What model calls cost, summed.

/// Billionths of a dollar: less than any call costs, and more than is lost when fractions are added.
const FINEST: f64 = 1e9;

/// A sum of costs. Engines add fractions in orders of their own, and the last digits say which.
pub fn rounded(sum: f64) -> f64 {
    (sum * FINEST).round() / FINEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "equal is what they are to be")]
    fn a_sum_is_the_same_in_whatever_order_it_was_made() {
        assert_eq!(rounded(0.041_249_999_999_999_995), 0.04125);
        assert_eq!(rounded(0.1 + 0.2), rounded(0.3));
        assert_eq!(rounded(0.000_000_15), 0.000_000_15);
    }
}
