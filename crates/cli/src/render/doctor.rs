//! Displays the findings of `doctor`.

use serde_json::Value;
use trackway_clients::CLIENTS;

use super::{Renderer, dim, heading};

impl Renderer {
    pub(super) fn doctor(&self, data: &Value) -> String {
        let mut lines = vec![format!("{} {}", dim("database"), self.cell(data, "database"))];
        lines.push(format!("{}   {}, schema {}", dim("engine"), self.cell(data, "engine"), self.cell(data, "schema")));
        let missing = || format!("not installed; to install them: {}", CLIENTS.connect_command());
        let hooks = if data["hooks"] == true { "installed".to_owned() } else { missing() };
        lines.push(format!("{}    {hooks}", dim("hooks")));
        let findings = data["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        if findings.is_empty() {
            lines.push("no problems found".to_owned());
        }
        for finding in findings {
            lines.push(format!("\n{}: {}", heading(&self.cell(finding, "check")), self.cell(finding, "problem")));
            lines.push(format!("  fix: {}", self.cell(finding, "fix")));
        }
        lines.join("\n")
    }
}
