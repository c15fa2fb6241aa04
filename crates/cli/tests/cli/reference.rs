//! The generated reference pages match the code.

use std::path::Path;

use snapbox::{Assert, Data};

#[test]
fn reference_pages_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (file, text) in trackway::reference::pages() {
        // SNAPSHOTS=overwrite regenerates the pages.
        Assert::new().action_env("SNAPSHOTS").eq(text, Data::read_from(&folder.join(file), None));
    }
}
