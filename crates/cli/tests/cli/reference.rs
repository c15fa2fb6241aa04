//! The reference pages are what the code says.

use std::path::Path;

use snapbox::{Assert, Data};

#[test]
fn the_reference_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    for (file, text) in trackway::reference::pages() {
        // SNAPSHOTS=overwrite writes them anew.
        Assert::new().action_env("SNAPSHOTS").eq(text, Data::read_from(&folder.join(file), None));
    }
}
