//! Generates message bodies from numbers. Word frequencies are as uneven as in real text, and some marker words occur
//! in a known share of the bodies.

/// Marker words, each with a number: the word occurs in one of this many bodies.
pub const MARKER_WORDS: [(&str, u64); 4] =
    [("onein2", 2), ("onein100", 100), ("onein1000", 1_000), ("onein20000", 20_000)];
const WORDS_PER_BODY: u64 = 40;
/// Number of different words.
const VOCABULARY: f64 = 50_000.0;

/// The body with this number: the same in every run.
pub fn body(number: u64) -> String {
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
    let mut body = format!("Message {number}:");
    for _ in 0..WORDS_PER_BODY {
        // The third power of a uniform number makes few words common and most words rare.
        let share = random.unit();
        body.push_str(&format!(" w{:.0}", VOCABULARY * share * share * share));
    }
    for (word, one_in) in MARKER_WORDS {
        if number.is_multiple_of(one_in) {
            body.push(' ');
            body.push_str(word);
            body.push_str(" mark");
        }
    }
    body
}

/// A linear congruential generator.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// A number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.next() as f64 / f64::from(1_u32 << 31)
    }
}
