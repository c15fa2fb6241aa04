//! The `trackway` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    trackway::run(std::env::args_os())
}
