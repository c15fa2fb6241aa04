//! The scripted model as a program: standalone, or around a command that talks to it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "only tests and people at a terminal use this")]

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
};

use clap::{Args, Parser};
use trackway_testkit::scripted_model::{Options, Scenario, ScriptedModel};

/// Play a scenario as a model API
#[derive(Debug, Parser)]
enum Arguments {
    /// Print the model's address and serve until stopped
    Serve(PlayArgs),
    /// Serve the model while a command runs, in a network namespace in which only loopback exists
    ///
    /// Start this program with `unshare --net`. It brings the loopback interface up and passes the model's address in the
    /// command's environment. $CWD in the scenario is replaced by the working directory.
    Run {
        #[command(flatten)]
        args: PlayArgs,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct PlayArgs {
    #[arg(long)]
    scenario: PathBuf,
    /// File to which requests are appended
    #[arg(long)]
    requests: Option<PathBuf>,
    /// Number that becomes part of the message ids
    #[arg(long, default_value_t = 0)]
    series: usize,
}

impl PlayArgs {
    fn start(self) -> ScriptedModel {
        let scenario = Scenario::read(&self.scenario).in_directory(&std::env::current_dir().unwrap());
        ScriptedModel::start_with(scenario, Options { series: self.series, requests_file: self.requests })
    }
}

fn main() -> ExitCode {
    match Arguments::parse() {
        Arguments::Serve(args) => {
            let model = args.start();
            println!("{}", model.url());
            loop {
                thread::park();
            }
        }
        Arguments::Run { args, command } => run(args, &command),
    }
}

fn run(args: PlayArgs, command: &[String]) -> ExitCode {
    let link_up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
    assert!(link_up.success(), "cannot bring the loopback interface up; start this program with unshare --net");
    let model = args.start();
    let status = Command::new(&command[0])
        .args(&command[1..])
        .env("ANTHROPIC_BASE_URL", model.url())
        .env("ANTHROPIC_API_KEY", "sk-scripted")
        .env("OPENAI_BASE_URL", format!("{}/v1", model.url()))
        .env("OPENAI_API_KEY", "sk-scripted")
        .status()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    // Like a shell, exits with 128 plus the signal number if a signal killed the command.
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}
