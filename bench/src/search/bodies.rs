//! Bodies of messages, made from a number: words as uneven as people's, and some whose share is known.

/// Words that are in a known share of all bodies: one in so many.
pub const SHARES: [(&str, u64); 4] = [("onein2", 2), ("onein100", 100), ("onein1000", 1_000), ("onein20000", 20_000)];
/// Words of a body.
const LENGTH: u64 = 40;
/// Different words there are.
const VOCABULARY: f64 = 50_000.0;

/// The body of a number, the same each time.
pub fn body(number: u64) -> String {
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    let mut body = format!("Message {number}:");
    for _ in 0..LENGTH {
        // The third power of a uniform number: few words are common, most are rare.
        let share = random.unit();
        body.push_str(&format!(" w{:.0}", VOCABULARY * share * share * share));
    }
    for (word, one_in) in SHARES {
        if number.is_multiple_of(one_in) {
            body.push(' ');
            body.push_str(word);
            body.push_str(" mark");
        }
    }
    body
}

/// A generator of numbers that are random enough.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.next() as f64 / f64::from(1_u32 << 31)
    }
}
