//! Checks that the files in `plugin/` are those that the code generates.

use std::path::Path;

use snapbox::{Assert, Data};
use trackway_client_claude::plugin;
use trackway_domain::enums::Memory;

#[test]
fn plugin_folder_matches_generated_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../plugin");
    for (file, text) in plugin::files(&plugin::hook_settings(Memory::default())) {
        // SNAPSHOTS=overwrite updates the files. They are compared as text, because the order of keys matters.
        let current = Data::read_from(&folder.join(file), Some(snapbox::data::DataFormat::Text));
        Assert::new().action_env("SNAPSHOTS").eq(Data::text(text), current.raw());
    }
}
