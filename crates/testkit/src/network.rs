//! Machines of a test: network namespaces at one switch, whose cables can be pulled.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::wait_until;

/// Some machines, reachable from each other only. Needs root.
#[derive(Debug)]
pub struct Network {
    switch: Machine,
    machines: Vec<Machine>,
}

/// A namespace lives as long as a process in it.
#[derive(Debug)]
struct Machine(Child);

impl Network {
    /// A network of so many machines, numbered from 1; none without root.
    pub fn of(machines: u8) -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            return None;
        }
        let network = Self { switch: Machine::start(), machines: (0..machines).map(|_| Machine::start()).collect() };
        network.switch.does("ip link add switch type bridge");
        network.switch.does("ip link set switch up");
        for (machine, number) in network.machines.iter().zip(1_u8..) {
            let process = machine.0.id();
            network.switch.does(&format!("ip link add port{number} type veth peer name cable netns {process}"));
            network.switch.does(&format!("ip link set port{number} master switch up"));
            machine.does(&format!("ip address add {}/24 dev cable", Self::address(number)));
            machine.does("ip link set cable up");
            machine.does("ip link set lo up");
        }
        Some(network)
    }

    pub fn address(machine: u8) -> String {
        format!("10.77.0.{machine}")
    }

    /// The same command on one of the machines.
    pub fn on(&self, machine: u8, command: &Command) -> Command {
        self.machines[usize::from(machine - 1)].on(command)
    }

    /// Pulls a cable: what is sent gets lost, and nobody is told.
    pub fn cut(&self, machine: u8) {
        self.switch.does(&format!("ip link set port{machine} down"));
    }

    /// Puts it back.
    pub fn mend(&self, machine: u8) {
        self.switch.does(&format!("ip link set port{machine} up"));
    }
}

impl Machine {
    fn start() -> Self {
        let mut command = Command::new("setpriv");
        command.args("--pdeathsig KILL unshare --net sleep infinity".split(' ')).stdin(Stdio::null());
        let machine = Self(command.spawn().unwrap());
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).unwrap_or_default();
        let of_machine = || -> PathBuf { namespace(&machine.0.id().to_string()) };
        wait_until("there is a network namespace", Duration::from_secs(5), || {
            (of_machine() != namespace("self")).then_some(())
        });
        machine
    }

    fn on(&self, command: &Command) -> Command {
        let mut there = Command::new("/usr/bin/nsenter");
        there.args(["--net", "--target", &self.0.id().to_string(), "--"]).arg(command.get_program());
        there.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            there.current_dir(directory);
        }
        there
    }

    fn does(&self, line: &str) {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = self.on(command.args(words)).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
