//! The scripted model as a program: on its own, or around a client.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "only tests and people at a terminal use this")]

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
};

use clap::{Args, Parser};
use trackway_testkit::scripted_model::{Options, Scenario, ScriptedModel};

/// A model that says what a scenario tells it to.
#[derive(Debug, Parser)]
enum Call {
    /// Print the model's address and serve until stopped
    Serve(Play),
    /// Run a command that talks to the model, alone with it: in a network namespace that has loopback only
    ///
    /// Start it with `unshare --net`. It brings loopback up, and says in the command's environment where the model is.
    /// $CWD in the scenario is the working directory.
    Run {
        #[command(flatten)]
        play: Play,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct Play {
    #[arg(long)]
    scenario: PathBuf,
    /// A file to append requests to
    #[arg(long)]
    requests: Option<PathBuf>,
    /// A number that goes into the ids of messages
    #[arg(long, default_value_t = 0)]
    series: usize,
}

impl Play {
    fn start(self) -> ScriptedModel {
        let scenario = Scenario::read(&self.scenario).in_directory(&std::env::current_dir().unwrap());
        ScriptedModel::start_with(scenario, Options { series: self.series, requests_file: self.requests })
    }
}

fn main() -> ExitCode {
    match Call::parse() {
        Call::Serve(play) => {
            let model = play.start();
            println!("{}", model.url());
            loop {
                thread::park();
            }
        }
        Call::Run { play, command } => run(play, &command),
    }
}

fn run(play: Play, command: &[String]) -> ExitCode {
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success(), "loopback cannot be brought up; start this with unshare --net");
    let model = play.start();
    let status = Command::new(&command[0])
        .args(&command[1..])
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "sk-scripted")
        .env("OPENAI_BASE_URL", format!("{}/v1", model.url()))
        .env("OPENAI_API_KEY", "sk-scripted")
        .status()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    // As shells do it: 128 and the signal.
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}
