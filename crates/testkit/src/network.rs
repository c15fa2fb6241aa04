//! Simulated machines: network namespaces connected by a bridge, whose links can be cut.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::wait_until;

/// Machines that reach only each other. Needs root.
#[derive(Debug)]
pub struct Network {
    switch: Machine,
    machines: Vec<Machine>,
}

/// A process that keeps a network namespace alive.
#[derive(Debug)]
struct Machine(Child);

impl Network {
    /// Creates a network of machines numbered from 1. Without root, returns none, or panics in CI.
    pub fn create(machines: u8) -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            assert!(std::env::var_os("CI").is_none(), "missing prerequisite: a network of machines needs root");
            return None;
        }
        let network = Self { switch: Machine::start(), machines: (0..machines).map(|_| Machine::start()).collect() };
        network.switch.run("ip link add switch type bridge");
        network.switch.run("ip link set switch up");
        for (machine, number) in network.machines.iter().zip(1_u8..) {
            let process = machine.0.id();
            network.switch.run(&format!("ip link add port{number} type veth peer name cable netns {process}"));
            network.switch.run(&format!("ip link set port{number} master switch up"));
            machine.run(&format!("ip address add {}/24 dev cable", Self::address(number)));
            machine.run("ip link set cable up");
            machine.run("ip link set lo up");
        }
        Some(network)
    }

    pub fn address(machine: u8) -> String {
        format!("10.77.0.{machine}")
    }

    /// The command, wrapped so that it runs on a machine.
    pub fn command_on(&self, machine: u8, command: &Command) -> Command {
        self.machines[usize::from(machine - 1)].wrap(command)
    }

    /// Cuts the link of a machine: its packets are lost, and neither side gets an error.
    pub fn cut_link(&self, machine: u8) {
        self.switch.run(&format!("ip link set port{machine} down"));
    }

    /// Restores the link of a machine.
    pub fn restore_link(&self, machine: u8) {
        self.switch.run(&format!("ip link set port{machine} up"));
    }
}

impl Machine {
    fn start() -> Self {
        let mut command = Command::new("setpriv");
        command.args("--pdeathsig KILL unshare --net sleep infinity".split(' ')).stdin(Stdio::null());
        let machine = Self(command.spawn().unwrap());
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).unwrap_or_default();
        let of_machine = || -> PathBuf { namespace(&machine.0.id().to_string()) };
        wait_until("the network namespace exists", Duration::from_secs(5), || {
            (of_machine() != namespace("self")).then_some(())
        });
        machine
    }

    fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("/usr/bin/nsenter");
        wrapped.args(["--net", "--target", &self.0.id().to_string(), "--"]).arg(command.get_program());
        wrapped.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            wrapped.current_dir(directory);
        }
        wrapped
    }

    fn run(&self, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = self.wrap(command.args(words)).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
