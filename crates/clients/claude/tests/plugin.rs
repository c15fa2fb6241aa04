//! The plugin's folder is what the code says.

use std::path::Path;

use snapbox::{Assert, Data};
use trackway_client_claude::plugin;
use trackway_domain::words::Memory;

#[test]
fn the_folder_is_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../plugin");
    for (file, text) in plugin::files(&plugin::wanted(Memory::default())) {
        // SNAPSHOTS=overwrite writes them anew. As text: the order of keys counts, too.
        let there = Data::read_from(&folder.join(file), Some(snapbox::data::DataFormat::Text));
        Assert::new().action_env("SNAPSHOTS").eq(Data::text(text), there.raw());
    }
}
