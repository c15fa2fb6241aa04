//! The effects of shell commands: the commits that a command made, and the files that it removed.

pub mod commits;
mod removals;

pub use self::{
    commits::{CompletedCommand, HeadLog, may_contain_commits},
    removals::find_removed,
};

fn is_keyword(word: &str) -> bool {
    matches!(word, "then" | "do" | "else" | "sudo")
}

/// A word of a command. None if only a shell could expand it.
type Word = Option<String>;

/// Splits a command line into simple commands and their words. Stops at syntax that only a shell could parse.
fn simple_commands(command: &str) -> Vec<Vec<Word>> {
    let (mut commands, mut words) = (Vec::new(), Vec::new());
    let mut characters = command.chars().peekable();
    // The current word, and whether it needs no expansion by a shell.
    let (mut word, mut is_plain) = (None::<String>, true);
    let mut quote = None;
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('\''), other) => word.get_or_insert_default().push(other),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, '\\') => word.get_or_insert_default().extend(characters.next().filter(|next| *next != '\n')),
            (_, '$' | '`') | (None, '*' | '?' | '[' | '{' | '~') => {
                is_plain = false;
                word.get_or_insert_default();
            }
            (None, '(' | ')') => break,
            (None, '<') if characters.peek() == Some(&'<') => break,
            (None, '#') if word.is_none() => while characters.next_if(|next| *next != '\n').is_some() {},
            (None, space_or_end) if " \t\n;&|<>".contains(space_or_end) => {
                words.extend(word.take().map(|word| std::mem::replace(&mut is_plain, true).then_some(word)));
                if !" \t".contains(space_or_end) {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (_, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.map(|word| is_plain.then_some(word)));
    commands.push(words);
    commands
}
